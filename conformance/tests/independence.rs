//! The suite is a black box: it must be able to judge any implementation, so it depends on none.

/// Packages that the suite may never name: the product and its parts.
const FORBIDDEN: [&str; 3] = ["tombolo", "tombolo-core", "tombolo-dataplane"];

#[test]
fn neither_the_suite_nor_its_testbed_depends_on_an_implementation() {
    for manifest in ["Cargo.toml", "../e2e/testbed/Cargo.toml"] {
        let path = format!("{}/{manifest}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("the crates are side by side");

        let named: Vec<_> = keys(&text).filter(|key| FORBIDDEN.contains(key)).collect();

        assert!(named.is_empty(), "{path} names {named:?}");
        assert!(
            keys(&text).any(|key| key == "kube"),
            "{path} is not read as expected"
        );
    }
}

/// The keys of a manifest, dependencies among them.
fn keys(manifest: &str) -> impl Iterator<Item = &str> {
    manifest.lines().filter_map(|line| {
        let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
        line.starts_with(char::is_alphabetic).then(|| &line[..end])
    })
}
