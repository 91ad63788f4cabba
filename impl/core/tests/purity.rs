//! What keeps the core pure: it cannot name a runtime, a client or a source of chance, and its texts are documented.

use std::{collections::BTreeSet, fs, path::Path};

use tombolo_core::{
    conditions::{ExportOutcome, export_conditions, import_condition},
    export::Refusal,
    merge::ConflictReason,
    service::IpFamily,
};

/// Crates without I/O, clock or randomness that the core may depend on.
const PURE: [&str; 9] = [
    "data-encoding",
    "ipnet",
    "jiff",
    "prost",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "zstd",
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_core_depends_on_pure_crates_only() {
    let manifest = read("Cargo.toml");
    let tables: Vec<_> = manifest
        .lines()
        .filter(|line| line.starts_with('[') && line.contains("dependencies"))
        .collect();

    let dependencies: BTreeSet<_> = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', '=', ' ']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect();

    assert_eq!(tables, ["[dependencies]", "[dev-dependencies]"]);
    assert_eq!(dependencies, BTreeSet::from(PURE));
}

#[test]
fn clippy_forbids_clocks_and_the_environment_in_the_core() {
    let config = read("clippy.toml");

    for function in [
        "std::time::SystemTime::now",
        "std::time::Instant::now",
        "jiff::Timestamp::now",
        "std::env::var",
    ] {
        assert!(
            config.contains(&format!("\"{function}\", reason = ")),
            "{function}"
        );
    }
}

#[test]
fn the_limits_of_the_workspace_hold_in_the_core_too() {
    let own = read("clippy.toml");
    let workspace = read("../../clippy.toml");

    for line in workspace.lines().filter(|line| line.contains(" = ")) {
        assert!(
            own.lines().any(|own| own == line),
            "impl/core/clippy.toml lacks {line:?}"
        );
    }
}

#[test]
fn every_reason_has_a_heading_in_the_documentation() {
    let page = read("../../docs/reasons.md");
    let refusals = [
        Refusal::NamespaceNotGlobal,
        Refusal::NoServiceExport,
        Refusal::NoService,
        Refusal::InvalidServiceType,
        Refusal::InvalidExportedLabels,
        Refusal::InvalidExportedAnnotations,
    ];
    let outcomes = refusals.map(ExportOutcome::Refused);
    let exports = outcomes.into_iter().chain([ExportOutcome::Merged(&[])]);
    let imports = [
        import_condition(false, &[], false),
        import_condition(true, &[], false),
        import_condition(true, &[IpFamily::V4], false),
        import_condition(true, &[IpFamily::V4], true),
    ];
    let conflicts = ConflictReason::ALL.iter().map(ToString::to_string);

    let conditions = exports.flat_map(export_conditions).chain(imports);
    let reasons: BTreeSet<_> = conditions
        .map(|condition| condition.reason)
        .chain(conflicts)
        .collect();

    for reason in reasons {
        let heading = format!("### {reason}");
        assert!(
            page.lines().any(|line| line == heading),
            "docs/reasons.md lacks {heading:?}"
        );
    }
}
