//! Verdicts as text, as a document and as an exit code. Never counts what was not run as passed.

pub mod document;

use std::{
    fmt,
    io::{self, Write},
};

use crate::{
    case::{Case, Group},
    rules,
    suite::Verdict,
};

/// How many cases ended how.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Cases in which everything held.
    pub passed: usize,
    /// Cases in which something did not.
    pub failed: usize,
    /// Cases that could not be run.
    #[serde(rename = "notrun")]
    pub not_run: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            not_run,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {not_run} not run")
    }
}

impl Counts {
    /// Counts verdicts.
    pub fn of<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let mut counts = Self::default();
        for verdict in verdicts {
            match verdict {
                Verdict::Passed { .. } => counts.passed += 1,
                Verdict::Failed { .. } => counts.failed += 1,
                Verdict::NotRun(_) => counts.not_run += 1,
            }
        }
        counts
    }

    /// 0: something was run and all of it passed. 1: something failed. 3: nothing was run.
    pub fn exit_code(self) -> u8 {
        match self {
            Self { failed: 1.., .. } => 1,
            Self { passed: 1.., .. } => 0,
            Self { .. } => 3,
        }
    }
}

/// Writes what happened to one case.
pub fn write_verdict(out: &mut impl Write, case: &Case, verdict: &Verdict) -> io::Result<()> {
    match verdict {
        Verdict::Passed { took, .. } => writeln!(out, "passed   {} ({took:.1?})", case.id),
        Verdict::NotRun(reason) => writeln!(out, "not run  {}: {reason}", case.id),
        Verdict::Failed { failure, .. } => {
            writeln!(out, "FAILED   {}: {}", case.id, case.title)?;
            writeln!(out, "         {failure}")?;
            for rule in case.rules {
                let title = rules::lookup(*rule).map_or("", |entry| entry.title);
                writeln!(out, "         {rule}: {title}")?;
            }
            Ok(())
        }
    }
}

/// Writes a line for each group, and the closing line.
pub fn write_counts<'a>(
    out: &mut impl Write,
    verdicts: impl Iterator<Item = (&'a Case, &'a Verdict)> + Clone,
) -> io::Result<()> {
    for group in Group::ALL {
        let of_group = verdicts.clone().filter(|(case, _)| case.group() == *group);
        let counts = Counts::of(of_group.map(|(_, verdict)| verdict));
        writeln!(out, "{group}: {counts}")?;
    }
    let counts = Counts::of(verdicts.map(|(_, verdict)| verdict));
    writeln!(out, "{counts}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn not_run_never_counts_as_passed() {
        let passed = Verdict::Passed {
            took: Duration::ZERO,
            slowest: None,
        };
        let not_run = Verdict::NotRun("no pods".to_owned());

        assert_eq!(Counts::of([&not_run]).exit_code(), 3);
        assert_eq!(Counts::of([&not_run, &passed]).exit_code(), 0);
        assert_eq!(Counts::of([&not_run, &passed]).passed, 1);
    }
}
