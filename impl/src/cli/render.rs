//! Answers on standard output: plain text that needs no terminal, or JSON. Decides nothing.
//!
//! What users or peers wrote is shown without control characters, so that no text can move the cursor or colour the screen.

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Longest cell of a table, in characters.
const CELL_MAX: usize = 160;

/// A table without lines, as wide as its cells.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| shortened(&printable(cell))));
    }
    let lines = table.to_string();
    let lines: Vec<_> = lines.lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// The text without control characters.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CELL_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Says something on standard error, on a line of its own. Nobody has to listen: work goes on when it is closed.
pub(super) fn note(text: &str) {
    use std::io::Write as _;
    let _nobody_listens = writeln!(std::io::stderr(), "{text}");
}

/// Writes to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    use anyhow::Context as _;
    use std::io::Write as _;
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// The value as indented JSON.
pub(super) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(|text| text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\nc"), "a\\u{1b}[31mb\\nc");
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells_and_has_no_trailing_blanks() {
        let rows = [
            vec!["paris".to_owned(), "80".to_owned()],
            vec!["rome".to_owned(), String::new()],
        ];

        let text = table(&["CLUSTER", "PORT"], &rows);

        assert_eq!(text, " CLUSTER  PORT\n paris    80\n rome");
    }

    #[test]
    fn a_long_cell_is_cut() {
        let text = table(&["A"], &[vec!["é".repeat(500)]]);

        assert!(text.ends_with('…') && text.chars().count() < 200, "{text}");
    }
}
