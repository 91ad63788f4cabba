use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use tombolo_e2e::chart::{Manifests, manifests::name_of};

use super::{case, helm, rendered};

/// Secrets with a certificate, and the keys that they all have.
const KEYS: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

fn decode(text: &str) -> Vec<u8> {
    let decoded = data_encoding::BASE64.decode(text.as_bytes());
    decoded.expect("data of a Secret is base64")
}

/// Writes every certificate of the release as `tombolo certs show` wants them.
fn write(manifests: &Manifests, directory: &Path) -> usize {
    let mut written = 0;
    for secret in manifests.of_kind("Secret") {
        if secret["type"] != "kubernetes.io/tls" {
            continue;
        }
        for key in KEYS {
            let content = decode(secret["data"][key].as_str().unwrap_or_default());
            let file = key.replace("tls", name_of(secret));
            let file = directory.join(file);
            fs::write(&file, content).expect("the directory is writable");
            fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("the file is ours");
        }
        written += 1;
    }
    written
}

/// What `tombolo certs show` says of the certificates of a release, which must all be usable.
fn shown(manifests: &Manifests, expected: usize) -> String {
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    assert_eq!(write(manifests, directory.path()), expected);
    let runtime = tokio::runtime::Runtime::new().expect("the system gives threads");
    let binary = runtime.block_on(tombolo_testbed::tombolo());
    let output = Command::new(binary.expect("tombolo builds"))
        .args(["certs", "show"])
        .arg(directory.path())
        .output()
        .expect("tombolo runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Whom the certificates of a release are for: the common names, from what `show` printed.
fn subjects(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().skip(1).map(str::trim);
    rows.filter_map(|row| {
        row.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .nth(1)
    })
    .collect()
}

#[test]
fn certificates_are_for_whom_the_mesh_knows() {
    let text = shown(case("replicated"), 4);

    let expected = [
        "Tombolo CA of paris",
        "admin-paris",
        "clustermesh-apiserver.tombolo-system.svc",
        "local-paris",
        "remote-paris",
    ];
    assert_eq!(subjects(&text), expected.into());
    let names = "clustermesh-apiserver.tombolo-system.svc *.mesh.cilium.io paris.mesh.cilium.io \
                 paris.example.org 127.0.0.1 ::1 192.0.2.1";
    assert!(text.contains(names), "{text}");
}

#[test]
fn towards_peers_a_cluster_is_anybody_until_it_has_a_name_there() {
    for name in ["defaults", "publisher"] {
        let text = shown(case(name), 4);
        let found = subjects(&text);
        assert!(
            found.contains("remote") && !found.contains("remote-paris"),
            "{text}"
        );
    }
}

#[test]
fn who_only_reads_has_only_the_certificate_of_a_reader() {
    let text = shown(case("importer"), 1);

    assert_eq!(subjects(&text), ["Tombolo CA of paris", "remote"].into());
}

#[test]
fn a_given_authority_signs() {
    let first = case("defaults")
        .get("Secret", "tombolo-ca")
        .expect("one is made");
    let (cert, key) = (&first["data"]["ca.crt"], &first["data"]["ca.key"]);
    let values =
        format!("cluster: {{name: rome, id: 2}}\ntls: {{ca: {{cert: {cert}, key: {key}}}}}\n");

    let rome = helm().template(&values);
    let rome = rome.unwrap_or_else(|error| panic!("{error}"));

    assert!(subjects(&shown(&rome, 4)).contains("admin-rome"));
    for secret in rome.of_kind("Secret") {
        if secret["type"] == "kubernetes.io/tls" {
            assert_eq!(secret["data"]["ca.crt"], *cert, "{}", name_of(secret));
        }
    }
}

#[test]
fn only_the_authority_s_own_secret_has_its_key_and_outlives_the_release() {
    for (case, manifests) in rendered() {
        for secret in manifests.of_kind("Secret") {
            let authority = name_of(secret) == "tombolo-ca";
            let keep = &secret["metadata"]["annotations"]["helm.sh/resource-policy"];
            assert_eq!(!secret["data"]["ca.key"].is_null(), authority, "{case}");
            assert_eq!(keep == "keep", authority, "{case}: {}", name_of(secret));
        }
        let text: String = manifests
            .of_kind("Deployment")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(!text.contains("tombolo-ca"), "{case}: no pod has it");
    }
}
