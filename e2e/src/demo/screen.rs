//! Writes the demo: a table that changes in place on a terminal, lines that are added elsewhere.

use std::io::{IsTerminal as _, Write as _, stdout};

use super::table::{self, Row};

/// Where the demo is shown.
pub(super) struct Screen {
    terminal: bool,
    shown: Vec<Row>,
    /// Lines of the table that is on the terminal now; it is replaced by the next one.
    lines: usize,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            terminal: stdout().is_terminal(),
            shown: Vec::new(),
            lines: 0,
        }
    }

    /// A new step: what was shown stays.
    pub(super) fn step(&mut self, title: &str) {
        self.lines = 0;
        self.shown.clear();
        let (bold, plain) = if self.terminal {
            ("\x1b[1m", "\x1b[0m")
        } else {
            ("", "")
        };
        println!("\n{bold}▶ {title}{plain}");
    }

    /// A remark.
    pub(super) fn say(&mut self, text: &str) {
        self.lines = 0;
        println!("  {text}");
    }

    /// The state now; nothing is written when it is the state that is shown already.
    pub(super) fn show(&mut self, rows: &[Row]) {
        if rows == self.shown {
            return;
        }
        if self.terminal {
            let text = table::table(rows);
            if self.lines > 0 {
                // Up to the first line of the table, and clear from there.
                print!("\x1b[{}A\x1b[J", self.lines);
            }
            println!("{text}");
            self.lines = text.lines().count();
            // A terminal that cannot be flushed shows the next table.
            let _ = stdout().flush();
        } else {
            for row in rows.iter().filter(|row| !self.shown.contains(row)) {
                println!("  {}", table::line(row));
            }
        }
        self.shown = rows.to_vec();
    }
}
