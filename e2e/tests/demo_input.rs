//! What the demo says to bad input, before it starts anything.

use std::{fs, path::Path, process::Command};

/// Runs the demo, expects exit code 2, returns the message.
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_demo"))
        .args(arguments)
        .env_remove("NODES")
        .env_remove("KEEP")
        .envs(environment.iter().copied())
        .output()
        .expect("the program runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    message
}

#[test]
fn missing_manifests_are_named() {
    let message = refused(&["--examples", "/nowhere"], &[]);

    assert!(message.contains("/nowhere/namespace.yaml"), "{message}");
}

#[test]
fn a_broken_manifest_is_named_with_document_and_field() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken-examples");
    fs::create_dir_all(&directory).unwrap();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, directory.join(path.file_name().unwrap())).unwrap();
    }
    fs::write(
        directory.join("export.yaml"),
        "apiVersion: v1\nkind: ServiceExprt\n",
    )
    .unwrap();

    let message = refused(&["--examples", directory.to_str().unwrap()], &[]);

    let wanted = "export.yaml: document 1: field kind: expected Namespace, Service or ServiceExport, \
                  found \"ServiceExprt\"";
    assert!(message.contains(wanted), "{message}");
}

#[test]
fn missing_binaries_are_one_message_with_the_command() {
    for (nodes, missing) in [("0", "missing: etcd"), ("1", "provider local")] {
        let empty = [
            ("TOMBOLO_ASSETS", ""),
            ("KUBEBUILDER_ASSETS", ""),
            ("PATH", ""),
            ("TOMBOLO_CACHE", "/nowhere"),
            ("NODES", nodes),
        ];

        let message = refused(&[], &empty);

        assert!(message.contains(missing), "NODES={nodes}: {message}");
        let cure = ["`make assets`", "`tools/setup node`", "root"];
        assert!(
            cure.iter().any(|it| message.contains(it)),
            "NODES={nodes}: {message}"
        );
    }
}
