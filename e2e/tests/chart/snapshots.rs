use super::{case, rendered};

/// The defaults as a whole; of the others what they have beyond the defaults.
#[test]
fn each_case_renders_to_what_was_looked_at() {
    insta::with_settings!({snapshot_path => "snapshots", prepend_module_to_snapshot => false}, {
        for (name, manifests) in rendered() {
            let base = (*name != "defaults").then(|| case("defaults"));
            insta::assert_snapshot!(*name, manifests.beyond(base));
        }
    });
}
