//! `tombolo certs`: what it refuses, and what it finds wrong.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    certs::{certs, read, refused, temporary, write},
    program::make,
};

/// A directory with an authority, some that cannot sign now, a certificate that is none, and an empty file.
fn bad_inputs(dir: &Path) -> PathBuf {
    let inputs = dir.join("inputs");
    let good = write(&inputs, "good", None, -1..240);
    write(&inputs, "old", None, -48..-24);
    write(&inputs, "early", None, 24..48);
    write(&inputs, "leaf", Some(&good), -1..24);
    fs::write(inputs.join("empty.crt"), "").unwrap();
    fs::create_dir(inputs.join("hollow")).unwrap();
    inputs
}

#[test]
fn bad_flags_and_files_are_named_with_the_rule_and_the_next_step() {
    let (kept, dir) = temporary();
    let inputs = bad_inputs(kept.path());
    let (dir, at) = (dir.display(), inputs.display());
    let make = format!("make {dir} --cluster-name paris");

    refused(
        "make x --cluster-name Paris",
        &["--cluster-name", "expected 1 to 32 of a-z"],
    );
    refused("make x", &["--cluster-name"]);
    refused(
        &format!("{make} --san UPPER"),
        &["--san", "expected an IP address or a host name"],
    );
    refused(
        &format!("{make} --validity-days 0"),
        &["--validity-days", "1..=36500"],
    );
    refused(&format!("{make} --ca-cert {at}/good.crt"), &["--ca-key"]);
    refused(
        &format!("{make} --trust {at}/leaf.crt"),
        &["--trust", "leaf.crt: leaf: basicConstraints"],
    );
    refused(
        &format!("bundle {at}/leaf.crt --into {dir}/x"),
        &["FILE", "leaf.crt: leaf: basicConstraints"],
    );
    refused(
        &format!("show {at}/nowhere"),
        &["nowhere: cannot be read", "check the path"],
    );
    refused(
        &format!("show {at}/hollow"),
        &["hollow: holds no file NAME.crt", "tombolo certs make"],
    );
    assert!(!Path::new(&dir.to_string()).exists(), "nothing was written");
}

#[test]
fn an_authority_that_cannot_sign_is_named_with_the_rule_and_the_next_step() {
    let (kept, dir) = temporary();
    let inputs = bad_inputs(kept.path());
    let (dir, at) = (dir.display(), inputs.display());
    let make = format!("make {dir} --cluster-name paris");
    let with = |cert: &str, key: &str| format!("{make} --ca-cert {at}/{cert} --ca-key {at}/{key}");

    refused(
        &with("none.crt", "good.key"),
        &["--ca-cert", "none.crt: cannot be read", "check the path"],
    );
    refused(
        &with("empty.crt", "good.key"),
        &[
            "empty.crt: holds no certificate",
            "expected one or more certificates",
        ],
    );
    refused(
        &with("good.crt", "empty.crt"),
        &[
            "--ca-key",
            "empty.crt: holds no usable key",
            "expected a private key",
        ],
    );
    refused(
        &with("good.crt", "old.key"),
        &[
            "old.key: does not belong to a certificate in --ca-cert",
            "good.crt",
        ],
    );
    refused(
        &with("leaf.crt", "leaf.key"),
        &[
            "leaf.crt: leaf: basicConstraints: not an authority",
            "name the certificate",
        ],
    );
    refused(
        &with("old.crt", "old.key"),
        &["old.crt: old expired at 20", "make a new authority"],
    );
    refused(
        &with("early.crt", "early.key"),
        &["early.crt: early is not valid before 20"],
    );
    assert!(!Path::new(&dir.to_string()).exists(), "nothing was written");
}

#[test]
fn a_certificate_never_outlives_its_authority() {
    let (kept, dir) = temporary();
    let inputs = kept.path().join("inputs");
    write(&inputs, "short", None, -1..240);
    let file = |name: &str| inputs.join(name).display().to_string();

    make(
        &dir,
        "paris",
        &[
            "--ca-cert",
            &file("short.crt"),
            "--ca-key",
            &file("short.key"),
        ],
    );

    assert_eq!(
        read(&dir, "server.crt")[0].not_after,
        read(&inputs, "short.crt")[0].not_after
    );
    let shown = certs(&format!("show {}", dir.display()));
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(
        shown.stdout.contains(
            "server: note: clustermesh-apiserver.kube-system.svc ends in 9 days; renew it"
        ),
        "{}",
        shown.stdout
    );
}

#[test]
fn what_is_wrong_with_a_directory_is_shown_file_by_file_and_makes_the_exit_code_1() {
    let (kept, dir) = temporary();
    let authority = write(&dir, "ca", None, -1000..1000);
    let other = write(&kept.path().join("other"), "ca", None, -1..1000);
    write(&dir, "good", Some(&authority), -1..999);
    write(&dir, "old", Some(&authority), -48..-24);
    write(&dir, "early", Some(&authority), 24..999);
    write(&dir, "foreign", Some(&other), -1..999);
    write(&dir, "mixed", Some(&authority), -1..999);
    fs::copy(dir.join("good.key"), dir.join("mixed.key")).unwrap();
    write(&dir, "keyless", Some(&authority), -1..999);
    fs::remove_file(dir.join("keyless.key")).unwrap();
    write(&dir, "open", Some(&authority), -1..999);
    fs::set_permissions(dir.join("open.key"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(
        dir.join("broken.crt"),
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    )
    .unwrap();

    let shown = certs(&format!("show {}", dir.display()));

    assert_eq!(shown.code, 1, "{}", shown.stderr);
    assert!(
        shown.stderr.contains("7 of 9 files cannot be used"),
        "{}",
        shown.stderr
    );
    let expected = [
        ("old: old expired at 20", "renew it: tombolo certs make"),
        ("early: early is not valid before 20", "check the clock"),
        (
            "foreign: is signed by none of the authorities",
            "tombolo certs bundle",
        ),
        (
            "mixed: does not belong to the key in ",
            "put the key that was made with it there",
        ),
        ("keyless: ", "keyless.key: cannot be read"),
        ("open: ", "mode 644 lets everybody read the key; chmod 600"),
        ("broken: holds a broken certificate", "make it anew"),
    ];
    for (begins, contains) in expected {
        let line = shown.stdout.lines().find(|line| line.starts_with(begins));
        let line = line.unwrap_or_else(|| panic!("{begins:?} is not in:\n{}", shown.stdout));
        assert!(line.contains(contains), "{line}");
    }
    assert!(!shown.stdout.contains("good: "), "{}", shown.stdout);
    assert!(!shown.stdout.contains("PRIVATE"), "{}", shown.stdout);
}
