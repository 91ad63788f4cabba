//! What became of the mutants, as a table and a closing line.

use comfy_table::{ContentArrangement, Table};

use super::{Fate, Outcome};

/// Columns of a terminal or log that shows the table without wrapping.
const WIDTH: u16 = 130;

/// The table, with what became of the suite without a mutant above it.
pub fn render(outcome: &Outcome) -> String {
    let mut table = Table::new();
    table
        .set_width(WIDTH)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "mutant",
            "what is wrong",
            "rule",
            "killed by: at step",
            "time",
        ]);
    for fate in &outcome.fates {
        table.add_row([
            fate.mutant.name.to_owned(),
            fate.mutant.wrong.to_owned(),
            fate.mutant.rule.to_string(),
            killers(fate),
            format!("{:.1} s", fate.took.as_secs_f64()),
        ]);
    }
    format!(
        "without a mutant: {} cases, all passed, in {:.1} s\n{table}\n{}",
        outcome.control,
        outcome.control_took.as_secs_f64(),
        closing(&outcome.fates)
    )
}

/// One line about one mutant.
pub fn line(fate: &Fate) -> String {
    let cases: Vec<_> = fate.kills.iter().map(|kill| kill.case).collect();
    match cases.as_slice() {
        [] => format!("{}: SURVIVED", fate.mutant.name),
        cases => format!("{}: killed by {}", fate.mutant.name, cases.join(", ")),
    }
}

/// `14 killed, 0 survived`.
pub fn closing(fates: &[Fate]) -> String {
    let survived = fates.iter().filter(|fate| fate.kills.is_empty()).count();
    format!("{} killed, {survived} survived", fates.len() - survived)
}

fn killers(fate: &Fate) -> String {
    let cases = fate.kills.iter();
    let texts: Vec<_> = cases
        .map(|kill| format!("{}: {}", kill.case, kill.step))
        .collect();
    if texts.is_empty() {
        "SURVIVED".to_owned()
    } else {
        texts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mutants::{Kill, list::MUTANTS};

    fn fate(index: usize, kills: Vec<Kill>) -> Fate {
        Fate {
            mutant: &MUTANTS[index],
            kills,
            took: Duration::from_millis(6_250),
        }
    }

    #[test]
    fn a_survivor_is_told_apart_in_the_table_and_counted() {
        let kill = Kill {
            case: "group/case",
            step: "it appears",
        };
        let outcome = Outcome {
            control: 30,
            control_took: Duration::from_secs(20),
            fates: vec![fate(0, vec![kill]), fate(2, Vec::new())],
        };

        let text = render(&outcome);

        assert!(
            text.starts_with("without a mutant: 30 cases, all passed, in 20.0 s\n"),
            "{text}"
        );
        assert!(text.contains("group/case: it appears"), "{text}");
        assert!(text.contains("SURVIVED"), "{text}");
        assert!(text.ends_with("\n1 killed, 1 survived"), "{text}");
    }
}
