//! JSON as Go's `encoding/json` writes it: no white space, `<`, `>`, `&`, U+2028 and U+2029 escaped, map keys sorted as
//! strings. Only what the records need.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

/// An object in the making. Members appear in the order in which they are added.
pub(super) struct Object<'a> {
    out: &'a mut String,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Opens an object at the end of `out`.
    pub(super) fn open(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, empty: true }
    }

    /// Closes it.
    pub(super) fn close(self) {
        self.out.push('}');
    }

    /// Adds a member's name; the caller writes its value.
    pub(super) fn member(&mut self, name: &str) -> &mut String {
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
        string(self.out, name);
        self.out.push(':');
        self.out
    }

    /// Adds a text.
    pub(super) fn text(&mut self, name: &str, value: &str) {
        string(self.member(name), value);
    }

    /// Adds a number or a boolean.
    pub(super) fn literal(&mut self, name: &str, value: impl Display) {
        write!(self.member(name), "{value}").expect("invariant: writing to a String cannot fail");
    }

    /// Adds an object.
    pub(super) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        object(self.member(name), fill);
    }

    /// Adds a map of texts, also when it is empty.
    pub(super) fn map(&mut self, name: &str, value: &BTreeMap<String, String>) {
        self.object(name, |map| {
            for (key, text) in value {
                map.text(key, text);
            }
        });
    }

    /// Adds a map of texts, unless it is empty.
    pub(super) fn map_unless_empty(&mut self, name: &str, value: &BTreeMap<String, String>) {
        if !value.is_empty() {
            self.map(name, value);
        }
    }

    /// Adds a list.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut String, T),
    ) {
        let out = self.member(name);
        out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write(out, item);
        }
        out.push(']');
    }
}

/// Writes an object.
pub(super) fn object(out: &mut String, fill: impl FnOnce(&mut Object<'_>)) {
    let mut object = Object::open(out);
    fill(&mut object);
    object.close();
}

/// Writes a string with Go's escapes.
pub(super) fn string(out: &mut String, text: &str) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                write!(out, "\\u{:04x}", u32::from(char))
                    .expect("invariant: writing to a String cannot fail");
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_go_does() {
        let cases = [
            ("a<b>&c", r#""a\u003cb\u003e\u0026c""#),
            ("\u{2028}\u{2029}", r#""\u2028\u2029""#),
            ("\"\\\n\r\t", r#""\"\\\n\r\t""#),
            ("\u{8}\u{c}\u{1f}\u{0}", r#""\b\f\u001f\u0000""#),
            ("é/'\u{7f}", "\"é/'\u{7f}\""),
        ];

        for (text, expected) in cases {
            let mut out = String::new();
            string(&mut out, text);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn members_keep_their_order_and_empty_maps_can_be_left_out() {
        let mut out = String::new();

        object(&mut out, |object| {
            object.text("z", "1");
            object.map_unless_empty("none", &BTreeMap::new());
            object.map("empty", &BTreeMap::new());
            object.literal("a", true);
            object.list("l", [1, 2], |out, item| out.push_str(&item.to_string()));
        });

        assert_eq!(out, r#"{"z":"1","empty":{},"a":true,"l":[1,2]}"#);
    }
}
