//! JSON as Go's `encoding/json` reads it: member names match in any case of letters, unknown members are ignored, `null`
//! counts as missing, and of two members with one name the later wins.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

use super::{Error, MAX_ENTRIES, MAX_VALUE_BYTES, clip};

/// A JSON value; members of objects in the order in which they were written. Texts without escapes are those of the input:
/// most of a record is such texts, and copying them takes longer than all else.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    /// A number that no member of ours can have.
    OtherNumber,
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    Object(Vec<Member<'a>>),
}

type Member<'a> = (Cow<'a, str>, Json<'a>);

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Json::Integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(value).map_or(Json::OtherNumber, Json::Integer))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Json::OtherNumber)
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Json::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((name, value)) = access.next_entry()? {
            // Names are texts.
            let Json::Text(name) = name else {
                return Err(A::Error::custom("expected the name of a member"));
            };
            members.push((name, value));
        }
        Ok(Json::Object(members))
    }
}

/// Parses a value of at most [`MAX_VALUE_BYTES`], nested at most [`super::MAX_DEPTH`] levels.
pub(super) fn parse(bytes: &[u8]) -> Result<Json<'_>, Error> {
    if bytes.len() > MAX_VALUE_BYTES {
        return Err(Error::TooLarge { size: bytes.len() });
    }
    let text = str::from_utf8(bytes).map_err(|_| Error::Encoding)?;
    serde_json::from_str(text).map_err(|error| {
        let error = error.to_string();
        if error.starts_with("recursion limit exceeded") {
            return Error::TooDeep;
        }
        Error::Syntax(clip(&error))
    })
}

/// The members of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Members<'a>(&'a [Member<'a>]);

impl Json<'_> {
    /// The members of an object; `null` and an empty list count as an empty one.
    pub(super) fn members(&self, field: &'static str) -> Result<Members<'_>, Error> {
        match self {
            Self::Object(members) => Ok(Members(members)),
            Self::Null => Ok(Members(&[])),
            Self::List(items) if items.is_empty() => Ok(Members(&[])),
            Self::Bool(_)
            | Self::Integer(_)
            | Self::OtherNumber
            | Self::Text(_)
            | Self::List(_) => Err(Error::Type {
                field,
                expected: "an object",
            }),
        }
    }

    /// A text; `null` counts as an empty one.
    pub(super) fn text(&self, field: &'static str) -> Result<&str, Error> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Null => Ok(""),
            Self::Bool(_)
            | Self::Integer(_)
            | Self::OtherNumber
            | Self::List(_)
            | Self::Object(_) => Err(Error::Type {
                field,
                expected: "a string",
            }),
        }
    }

    fn list(&self, field: &'static str) -> Result<&[Json<'_>], Error> {
        match self {
            Self::List(items) => Ok(items),
            Self::Null => Ok(&[]),
            Self::Object(members) if members.is_empty() => Ok(&[]),
            Self::Bool(_)
            | Self::Integer(_)
            | Self::OtherNumber
            | Self::Text(_)
            | Self::Object(_) => Err(Error::Type {
                field,
                expected: "a list",
            }),
        }
    }
}

impl<'a> Members<'a> {
    /// Names and values as written, for maps.
    pub(super) fn iter(self) -> impl Iterator<Item = (&'a str, &'a Json<'a>)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    /// Refuses a map with more than `max` entries.
    pub(super) fn at_most(self, max: usize, field: &'static str) -> Result<Self, Error> {
        bounded(self.0.len(), max, field).map(|()| self)
    }

    /// The member with this name in any case of letters, unless it is missing or `null`.
    pub(super) fn get(self, name: &str) -> Option<&'a Json<'a>> {
        self.last(|candidate| same_name(candidate, name))
    }

    /// The member with exactly this name.
    pub(super) fn get_exact(self, name: &str) -> Option<&'a Json<'a>> {
        self.last(|candidate| candidate == name)
    }

    /// The member with this name in any case of letters but that of `other`, which is a member of its own.
    pub(super) fn get_other_than(self, name: &str, other: &str) -> Option<&'a Json<'a>> {
        self.last(|candidate| candidate != other && same_name(candidate, name))
    }

    /// A text; empty when missing.
    pub(super) fn text(self, name: &'static str) -> Result<&'a str, Error> {
        self.get(name).map_or(Ok(""), |value| value.text(name))
    }

    /// A boolean; false when missing.
    pub(super) fn boolean(self, name: &'static str) -> Result<bool, Error> {
        self.optional_boolean(name)
            .map(|value| value.unwrap_or(false))
    }

    /// A boolean, if it is there.
    pub(super) fn optional_boolean(self, name: &'static str) -> Result<Option<bool>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(Error::Type {
                field: name,
                expected: "true or false",
            }),
        }
    }

    /// An integer, if it is there.
    pub(super) fn integer(self, name: &'static str) -> Result<Option<i64>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Integer(value)) => Ok(Some(*value)),
            Some(_) => Err(Error::Type {
                field: name,
                expected: "a whole number",
            }),
        }
    }

    /// A number of an unsigned type; 0 when missing.
    pub(super) fn unsigned<T: TryFrom<i64> + Default>(
        self,
        name: &'static str,
    ) -> Result<T, Error> {
        let number = self.integer(name)?.unwrap_or_default();
        T::try_from(number).map_err(|_| Error::Type {
            field: name,
            expected: match size_of::<T>() {
                1 => "a number from 0 to 255",
                2 => "a number from 0 to 65535",
                _ => "a number from 0 to 4294967295",
            },
        })
    }

    /// A list of at most `max` items; empty when missing.
    pub(super) fn list(self, name: &'static str, max: usize) -> Result<&'a [Json<'a>], Error> {
        let items = self
            .get(name)
            .map_or(Ok(&[][..]), |value| value.list(name))?;
        bounded(items.len(), max, name).map(|()| items)
    }

    /// The members of an object; none when missing.
    pub(super) fn members(self, name: &'static str) -> Result<Members<'a>, Error> {
        self.get(name)
            .map_or(Ok(Members(&[])), |value| value.members(name))
    }

    fn last(self, matches: impl Fn(&str) -> bool) -> Option<&'a Json<'a>> {
        let (_, value) = self.0.iter().rev().find(|(name, _)| matches(name))?;
        (*value != Json::Null).then_some(value)
    }
}

/// A map of texts with at most [`MAX_ENTRIES`] entries.
pub(super) fn text_map(
    value: Option<&Json<'_>>,
    field: &'static str,
) -> Result<BTreeMap<String, String>, Error> {
    let Some(value) = value else {
        return Ok(BTreeMap::new());
    };
    let members = value.members(field)?.at_most(MAX_ENTRIES, field)?;
    members
        .iter()
        .map(|(key, value)| Ok((key.to_owned(), value.text(field)?.to_owned())))
        .collect()
}

fn bounded(count: usize, max: usize, field: &'static str) -> Result<(), Error> {
    if count > max {
        return Err(Error::TooMany { field, count, max });
    }
    Ok(())
}

/// Go compares member names by simple case folding: ASCII letters, and the two other characters that fold to one.
fn same_name(one: &str, other: &str) -> bool {
    if one.is_ascii() {
        return one.eq_ignore_ascii_case(other);
    }
    let folded = |char| match char {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => char::to_ascii_lowercase(&char),
    };
    one.chars().map(folded).eq(other.chars().map(folded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MAX_DEPTH;

    fn number(text: &str) -> Result<Option<i64>, Error> {
        let json = parse(text.as_bytes())?;
        json.members("value")?.integer("port")
    }

    #[test]
    fn names_match_in_any_case_and_the_later_of_two_wins() {
        assert_eq!(number(r#"{"PORT":1}"#), Ok(Some(1)));
        assert_eq!(number(r#"{"port":1,"Port":2}"#), Ok(Some(2)));
        assert_eq!(number(r#"{"ports":1}"#), Ok(None));
        assert_eq!(number(r#"{"port":null}"#), Ok(None));
    }

    #[test]
    fn numbers_that_are_not_whole_are_refused() {
        for text in [r#"{"port":1.5}"#, r#"{"port":"1"}"#, r#"{"port":1e99}"#] {
            let error = number(text).unwrap_err();
            assert_eq!(error.to_string(), "port: expected a whole number");
        }
    }

    #[test]
    fn values_that_are_too_large_or_too_deep_are_refused() {
        let large = vec![b' '; MAX_VALUE_BYTES + 1];
        let deep = "[".repeat(100_000);

        assert_eq!(parse(&large).unwrap_err().reason(), "TooLarge");
        assert_eq!(parse(deep.as_bytes()), Err(Error::TooDeep));
        let levels = |count| ["[".repeat(count), "]".repeat(count)].concat();
        assert!(parse(levels(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(parse(levels(MAX_DEPTH + 1).as_bytes()), Err(Error::TooDeep));
    }

    #[test]
    fn names_and_texts_may_have_escapes_and_letters_that_fold() {
        let json = parse("{\"\\u0070ort\":1,\"pa\u{17f}t\":\"\\u003cb\"}".as_bytes()).unwrap();
        let members = json.members("value").unwrap();

        assert_eq!(members.integer("port"), Ok(Some(1)));
        assert_eq!(members.text("past"), Ok("<b"));
        assert_eq!(parse(b"\"\xff\""), Err(Error::Encoding));
    }

    #[test]
    fn maps_are_bounded() {
        let members: Vec<_> = (0..=MAX_ENTRIES)
            .map(|index| format!("\"k{index}\":\"\""))
            .collect();
        let text = format!("{{{}}}", members.join(","));
        let json = parse(text.as_bytes()).unwrap();

        let error = text_map(Some(&json), "labels").unwrap_err();

        assert_eq!(error.reason(), "TooMany");
    }
}
