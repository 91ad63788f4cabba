//! House rules that no compiler checks: sizes of files, paths in the documents, who may write to the API server.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const FILE_LINES: usize = 400;
const TEST_FILE_LINES: usize = 600;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the package is one level below the root")
        .to_owned()
}

/// Every file below `directory` with this extension, as paths relative to the root.
fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root().join(directory)];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("the tree is readable") {
            let path = entry.expect("the tree is readable").path();
            if path.is_dir() && !path.ends_with("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(
                    path.strip_prefix(root())
                        .expect("it is below the root")
                        .to_owned(),
                );
            }
        }
    }
    found.sort();
    found
}

fn rust_files() -> Vec<PathBuf> {
    ["impl", "conformance", "e2e", "benches", "fuzz"]
        .iter()
        .flat_map(|top| files(top, "rs"))
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn is_test_file(path: &Path) -> bool {
    let name = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or_default();
    path.components().any(|part| part.as_os_str() == "tests") || name.ends_with("tests")
}

/// Texts between backticks, outside of code blocks.
fn code_spans(markdown: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut spans = Vec::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2));
        }
    }
    spans
}

#[test]
fn no_file_is_longer_than_its_budget() {
    let mut too_long = Vec::new();
    for path in rust_files() {
        let text = read(&path);
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let lines = code.lines().count();
        let budget = if is_test_file(&path) {
            TEST_FILE_LINES
        } else {
            FILE_LINES
        };
        if lines > budget {
            too_long.push(format!(
                "{}: {lines} lines, budget {budget}",
                path.display()
            ));
        }
    }
    assert!(
        too_long.is_empty(),
        "split by what they are about:\n{}",
        too_long.join("\n")
    );
}

#[test]
fn every_path_that_a_document_names_exists() {
    let tops = [
        "impl/",
        "conformance/",
        "e2e/",
        "benches/",
        "docs/",
        "tools/",
        "examples/",
        "fuzz/",
        ".ci/",
        "chart/",
        "image/",
        "kind/",
    ];
    let mut missing = BTreeSet::new();
    let mut checked = 0;
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/decisions.md",
        "docs/reasons.md",
        "benches/README.md",
    ] {
        for span in code_spans(&read(Path::new(document))) {
            if tops.iter().any(|top| span.starts_with(top)) && !span.contains(['*', ' ', '<']) {
                checked += 1;
                let path = span.split('#').next().unwrap_or(span);
                if !root().join(path).exists() {
                    missing.insert(format!("{document}: {span}"));
                }
            }
        }
    }
    assert!(
        checked > 20,
        "only {checked} paths were found: does the check still work?"
    );
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_function_in_the_story_of_an_export_exists() {
    let architecture = read(Path::new("ARCHITECTURE.md"));
    let mut steps = 0;
    for row in architecture.lines().filter(|line| line.starts_with("| ")) {
        let numbered = row[2..].starts_with(|first: char| first.is_ascii_digit());
        if !numbered {
            continue;
        }
        let spans = code_spans(row);
        let [file, function, ..] = spans.as_slice() else {
            continue;
        };
        if Path::new(file)
            .extension()
            .is_none_or(|found| found != "rs")
        {
            continue;
        }
        steps += 1;
        let name = function.rsplit("::").next().unwrap_or(function);
        let text = read(Path::new(file));
        assert!(
            text.contains(&format!("fn {name}")),
            "{file} has no function {name}"
        );
    }
    assert!(
        steps >= 10,
        "only {steps} steps were found: does the check still work?"
    );
}

#[test]
fn only_apply_writes_to_the_api_server() {
    let writes = ["PatchParams", "PostParams", "DeleteParams", "Recorder"];
    let mut found = Vec::new();
    let mut in_apply = 0;
    for path in files("impl/src", "rs") {
        let text = path.to_string_lossy();
        // The Lease that says who writes is not written under itself.
        let allowed = text.starts_with("impl/src/operator/apply")
            || text == "impl/src/operator/leadership.rs"
            // What a user asked for, and whether somebody may do something, which is asked by a creation that stores nothing.
            || text == "impl/src/cli/dns/apply.rs"
            || text == "impl/src/cli/dns/rights.rs"
            || text == "impl/src/cli/connect/write.rs";
        for (index, line) in read(&path).lines().enumerate() {
            if writes.iter().any(|write| line.contains(write)) {
                if allowed {
                    in_apply += 1;
                } else if !is_test_file(&path) {
                    found.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
                }
            }
        }
    }
    assert!(
        in_apply > 0,
        "not even apply writes: does the check still work?"
    );
    assert!(
        found.is_empty(),
        "move these to operator/apply.rs:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_suite_cannot_depend_on_the_product() {
    for manifest in [
        "conformance/Cargo.toml",
        "e2e/testbed/Cargo.toml",
        "e2e/Cargo.toml",
    ] {
        let text = read(Path::new(manifest));
        let depends = text.lines().any(|line| {
            line.starts_with("tombolo.")
                || line.starts_with("tombolo =")
                || line.starts_with("tombolo-core")
        });
        assert!(!depends, "{manifest} depends on the product");
    }
}

#[test]
fn every_decision_has_a_number_of_its_own() {
    let decisions = read(Path::new("docs/decisions.md"));
    let numbers = decisions.lines().filter_map(|line| {
        let cell = line.strip_prefix("| ")?.split(" |").next()?;
        cell.trim_end_matches('†').parse::<u32>().ok()
    });
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = numbers.filter(|number| !seen.insert(*number)).collect();

    assert!(seen.len() > 50, "the rows of the decisions were not found");
    assert!(
        twice.is_empty(),
        "docs/decisions.md: rows {twice:?} are there twice; give the later ones the next free number"
    );
}
