//! The words of a Corefile with their places, as CoreDNS' own lexer tells them apart.
//!
//! Words end at white space; `#` begins a comment anywhere outside of quotes; a word that begins with `"` goes on to the next
//! `"` that has no backslash before it. A brace is a word of its own.

use super::Refusal;

/// A word and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// The word, without quotes.
    pub(super) text: String,
    /// First byte.
    pub(super) start: usize,
    /// One past the last byte.
    pub(super) end: usize,
    /// The line it begins on, from 1.
    pub(super) line: usize,
    /// The line it ends on.
    pub(super) last_line: usize,
}

impl Token {
    /// Whether it is this text.
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// All words of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Refusal> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut chars = text.char_indices().peekable();
    // A byte order mark is no word.
    chars.next_if(|(_, c)| *c == '\u{feff}');
    while let Some((start, c)) = chars.next() {
        match c {
            '\n' => line += 1,
            '#' => while chars.next_if(|(_, c)| *c != '\n').is_some() {},
            '"' => {
                let (word, end, lines) = quoted(&mut chars).ok_or(Refusal::OpenQuote { line })?;
                found.push(Token {
                    text: word,
                    start,
                    end,
                    line,
                    last_line: line + lines,
                });
                line += lines;
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                let mut end = start + c.len_utf8();
                while let Some((at, c)) = chars.next_if(|(_, c)| !c.is_whitespace() && *c != '#') {
                    word.push(c);
                    end = at + c.len_utf8();
                }
                found.push(Token {
                    text: word,
                    start,
                    end,
                    line,
                    last_line: line,
                });
            }
        }
    }
    Ok(found)
}

/// The rest of a quoted word, where it ends, and how many lines it goes on for. None: it does not end.
fn quoted(
    chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
) -> Option<(String, usize, usize)> {
    let (mut word, mut lines, mut escaped) = (String::new(), 0, false);
    for (at, c) in chars.by_ref() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => return Some((word, at + 1, lines)),
            '\n' => lines += 1,
            _ => {}
        }
        if escaped && c != '"' {
            word.push('\\');
        }
        word.push(c);
        escaped = false;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(String, usize)> {
        let tokens = tokens(text).unwrap();
        for token in &tokens {
            assert!(token.start < token.end && token.end <= text.len());
        }
        tokens.into_iter().map(|it| (it.text, it.line)).collect()
    }

    fn expected(words: &[(&str, usize)]) -> Vec<(String, usize)> {
        words.iter().map(|(a, b)| ((*a).to_owned(), *b)).collect()
    }

    #[test]
    fn words_end_at_white_space_and_comments() {
        assert_eq!(
            words("\u{feff}.:53 { # first\r\n  log#second\n\tcache 30\n}\n"),
            expected(&[
                (".:53", 1),
                ("{", 1),
                ("log", 2),
                ("cache", 3),
                ("30", 3),
                ("}", 4)
            ])
        );
    }

    #[test]
    fn quotes_keep_blanks_braces_comments_and_lines_together() {
        assert_eq!(
            words("a \"b # {\nc\\\"d\\e\" f\ng"),
            expected(&[("a", 1), ("b # {\nc\"d\\e", 1), ("f", 2), ("g", 3)])
        );
    }

    #[test]
    fn a_quote_inside_of_a_word_is_part_of_it() {
        assert_eq!(words("a\"b c"), expected(&[("a\"b", 1), ("c", 1)]));
    }

    #[test]
    fn a_quote_that_does_not_end_is_refused() {
        assert_eq!(tokens("a\n\"b\n"), Err(Refusal::OpenQuote { line: 2 }));
    }
}
