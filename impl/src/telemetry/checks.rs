//! The answers of `/livez` and `/readyz`, in the form of Kubernetes' own: one line for each check with `?verbose`, one check
//! alone under its own path, some left out with `?exclude=NAME`. Pure.

use std::fmt::Write as _;

/// One thing that a probe asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name: the last part of its path, such as `published` or `peer/rome`.
    pub name: String,
    /// Why it fails; none when all is well.
    pub failure: Option<String>,
    /// Whether its failure is one of the whole process. A peer that is away is not a reason to take this process for unready.
    pub counts: bool,
}

/// What was asked for behind the name of the probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// One check alone.
    pub only: Option<String>,
    /// Whether to list every check.
    pub verbose: bool,
    /// Checks that are left out.
    pub exclude: Vec<String>,
}

/// The answer to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// All is well; the text says so.
    Passed(String),
    /// Something is not; the text says what.
    Failed(String),
    /// There is no check of that name.
    NotFound(String),
}

impl Question {
    /// From the path behind the probe's name and the query, both as in the request.
    pub fn parse(rest: &str, query: Option<&str>) -> Self {
        let name = rest.trim_matches('/');
        let mut question = Self {
            only: (!name.is_empty()).then(|| name.to_owned()),
            ..Self::default()
        };
        for pair in query.unwrap_or_default().split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("verbose", value) => question.verbose = value != "false" && value != "0",
                ("exclude", name) => question.exclude.push(name.replace("%2F", "/")),
                _ => {}
            }
        }
        question
    }
}

/// Answers a probe.
pub fn answer(probe: &str, checks: &[Check], question: &Question) -> Answer {
    if let Some(name) = &question.only {
        let Some(check) = checks.iter().find(|check| check.name == *name) else {
            return Answer::NotFound(format!(
                "there is no check {name:?}; /{probe}?verbose lists them\n"
            ));
        };
        return match &check.failure {
            None => Answer::Passed("ok\n".to_owned()),
            Some(why) => Answer::Failed(format!("{why}\n")),
        };
    }
    let failed: Vec<_> = checks
        .iter()
        .filter(|check| check.counts && check.failure.is_some())
        .filter(|check| !question.exclude.contains(&check.name))
        .map(|check| check.name.as_str())
        .collect();
    let text = if question.verbose {
        listing(probe, checks, question, failed.is_empty())
    } else if failed.is_empty() {
        "ok\n".to_owned()
    } else {
        format!("waiting for: {}\n", failed.join(", "))
    };
    if failed.is_empty() {
        Answer::Passed(text)
    } else {
        Answer::Failed(text)
    }
}

fn listing(probe: &str, checks: &[Check], question: &Question, passed: bool) -> String {
    let mut text = String::new();
    for check in checks {
        let name = &check.name;
        let _infallible = match &check.failure {
            _ if question.exclude.contains(name) => writeln!(text, "[+]{name} excluded: ok"),
            None => writeln!(text, "[+]{name} ok"),
            Some(why) if check.counts => writeln!(text, "[-]{name} failed: {why}"),
            Some(why) => writeln!(
                text,
                "[-]{name} failed, which does not count for {probe}: {why}"
            ),
        };
    }
    let end = if passed { "passed" } else { "failed" };
    text + &format!("{probe} check {end}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        let check = |name: &str, failure: Option<&str>, counts| Check {
            name: name.to_owned(),
            failure: failure.map(str::to_owned),
            counts,
        };
        vec![
            check("controllers", None, true),
            check("published", Some("waiting"), true),
            check("peer/rome", Some("Connecting: no connection"), false),
        ]
    }

    fn ask(rest: &str, query: Option<&str>) -> Answer {
        answer("readyz", &checks(), &Question::parse(rest, query))
    }

    #[test]
    fn the_short_answer_names_what_fails_and_counts() {
        assert_eq!(
            ask("", None),
            Answer::Failed("waiting for: published\n".into())
        );
    }

    #[test]
    fn the_long_answer_lists_every_check_as_kubernetes_does() {
        let expected = "[+]controllers ok\n[-]published failed: waiting\n\
            [-]peer/rome failed, which does not count for readyz: Connecting: no connection\n\
            readyz check failed\n";

        assert_eq!(ask("/", Some("verbose")), Answer::Failed(expected.into()));
    }

    #[test]
    fn what_is_excluded_does_not_count() {
        let Answer::Passed(text) = ask("", Some("exclude=published&verbose=true")) else {
            panic!("the only failure is excluded");
        };

        assert!(text.contains("[+]published excluded: ok\n"), "{text}");
        assert!(text.ends_with("readyz check passed\n"), "{text}");
    }

    #[test]
    fn a_check_alone_fails_although_it_does_not_count() {
        assert_eq!(
            ask("/peer/rome", None),
            Answer::Failed("Connecting: no connection\n".into())
        );
        assert_eq!(ask("/controllers", None), Answer::Passed("ok\n".into()));
        assert!(matches!(ask("/nobody", None), Answer::NotFound(_)));
    }
}
