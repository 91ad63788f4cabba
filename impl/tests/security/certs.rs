//! `tombolo certs`: what it makes, what it refuses, what it finds wrong.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Secret;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use tombolo::certificate::Certificate;

use crate::program::{Answer, answer, make};

pub(crate) fn certs(arguments: &str) -> Answer {
    answer(["certs"].into_iter().chain(arguments.split_whitespace()))
}

/// Asserts that bad input is refused with exit code 2, nothing on standard output, and all of these in the message.
pub(crate) fn refused(arguments: &str, parts: &[&str]) {
    let answer = certs(arguments);
    assert_eq!(answer.code, 2, "{arguments}: {}", answer.stderr);
    assert_eq!(answer.stdout, "", "{arguments}");
    for part in parts {
        assert!(
            answer.stderr.contains(part),
            "{part:?} is not in: {}",
            answer.stderr
        );
    }
}

pub(crate) fn temporary() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("paris");
    (dir, path)
}

pub(crate) fn read(dir: &Path, name: &str) -> Vec<Certificate> {
    Certificate::read_all(&fs::read(dir.join(name)).unwrap()).unwrap()
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// Writes `NAME.crt` and `NAME.key`, valid for these hours from now; signed by the issuer, or an authority without one.
pub(crate) fn write(
    dir: &Path,
    name: &str,
    issuer: Option<&Issuer<'_, KeyPair>>,
    hours: std::ops::Range<i64>,
) -> Issuer<'static, KeyPair> {
    fs::create_dir_all(dir).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = OffsetDateTime::now_utc() + Duration::hours(hours.start);
    params.not_after = OffsetDateTime::now_utc() + Duration::hours(hours.end);
    let key = KeyPair::generate().unwrap();
    let pem = if let Some(issuer) = issuer {
        params.signed_by(&key, issuer).unwrap().pem()
    } else {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&key).unwrap().pem()
    };
    fs::write(dir.join(format!("{name}.crt")), pem).unwrap();
    let file = dir.join(format!("{name}.key"));
    fs::write(&file, key.serialize_pem()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    Issuer::new(params, key)
}

#[test]
fn one_command_makes_what_a_cluster_needs_and_shows_no_key() {
    let (_kept, dir) = temporary();

    let said = make(
        &dir,
        "paris",
        &["--peer", "rome", "--san", "paris.example,203.0.113.7"],
    );

    let pairs = [
        "admin-paris",
        "ca",
        "local-paris",
        "remote",
        "remote-paris",
        "remote-rome",
        "server",
    ];
    let pair = |name: &&str| [format!("{name}.crt"), format!("{name}.key")];
    let mut files: Vec<_> = pairs.iter().flat_map(pair).collect();
    files.sort();
    assert_eq!(names(&dir), files);
    for name in pairs {
        let mode = |end| {
            fs::metadata(dir.join(format!("{name}.{end}")))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!((mode("key"), mode("crt")), (0o600, 0o644), "{name}");
        let key = fs::read_to_string(dir.join(format!("{name}.key"))).unwrap();
        let secret = key.lines().nth(1).unwrap();
        assert!(
            !said.contains(secret) && !said.contains("PRIVATE KEY"),
            "{said}"
        );
    }
}

#[test]
fn certificates_have_ciliums_names_and_validity() {
    let (_kept, dir) = temporary();

    let more = ["--peer", "rome", "--san", "paris.example,203.0.113.7"];
    let said = make(&dir, "paris", &more);

    let server = &read(&dir, "server.crt")[0];
    assert_eq!(
        server.common_name.as_deref(),
        Some("clustermesh-apiserver.kube-system.svc")
    );
    let sans = [
        "clustermesh-apiserver.kube-system.svc",
        "*.mesh.cilium.io",
        "paris.mesh.cilium.io",
        "127.0.0.1",
        "::1",
        "paris.example",
        "203.0.113.7",
    ];
    assert_eq!(server.names, sans);
    for user in [
        "admin-paris",
        "local-paris",
        "remote",
        "remote-paris",
        "remote-rome",
    ] {
        let certificate = &read(&dir, &format!("{user}.crt"))[0];
        assert_eq!(certificate.common_name.as_deref(), Some(user));
        let days = certificate
            .not_after
            .duration_since(certificate.not_before)
            .as_hours()
            / 24;
        assert_eq!(days, 1095, "{user}");
        assert!(said.contains(user), "{said}");
    }
    let shown = certs(&format!("show {}", dir.display()));
    assert_eq!(
        (shown.code, shown.stderr.as_str()),
        (0, ""),
        "{}",
        shown.stdout
    );
}

#[test]
fn nothing_is_overwritten_unless_forced() {
    let (_kept, dir) = temporary();
    make(&dir, "paris", &[]);
    let before = fs::read(dir.join("admin-paris.key")).unwrap();
    fs::remove_file(dir.join("ca.crt")).unwrap();

    refused(
        &format!("make {} --cluster-name paris", dir.display()),
        &["ca.key: exists", "nothing was written", "--force"],
    );

    assert_eq!(fs::read(dir.join("admin-paris.key")).unwrap(), before);
    assert!(!dir.join("ca.crt").exists());
    make(&dir, "paris", &["--force"]);
    assert_ne!(fs::read(dir.join("admin-paris.key")).unwrap(), before);
    assert_eq!(certs(&format!("show {}", dir.display())).code, 0);
}

#[test]
fn clusters_can_share_an_authority_or_trust_each_others() {
    let (kept, paris) = temporary();
    let (rome, oslo) = (kept.path().join("rome"), kept.path().join("oslo"));
    make(&paris, "paris", &[]);
    let file = |name: &str| paris.join(name).display().to_string();

    make(
        &rome,
        "rome",
        &["--ca-cert", &file("ca.crt"), "--ca-key", &file("ca.key")],
    );
    make(&oslo, "oslo", &["--trust", &file("ca.crt")]);

    assert_eq!(read(&rome, "ca.crt"), read(&paris, "ca.crt"));
    assert!(
        !rome.join("ca.key").exists(),
        "a key that was given is not copied"
    );
    assert_eq!(
        read(&rome, "admin-rome.crt")[0].issuer,
        "Tombolo CA of paris"
    );
    let trusted: Vec<_> = read(&oslo, "ca.crt")
        .into_iter()
        .map(|ca| ca.common_name.unwrap())
        .collect();
    assert_eq!(trusted, ["Tombolo CA of oslo", "Tombolo CA of paris"]);
    for dir in [&rome, &oslo] {
        let shown = certs(&format!("show {}", dir.display()));
        assert_eq!(shown.code, 0, "{}{}", shown.stdout, shown.stderr);
    }
}

#[test]
fn a_bundle_has_every_authority_once_and_also_signs() {
    let (kept, paris) = temporary();
    let rome = kept.path().join("rome");
    make(&paris, "paris", &[]);
    make(&rome, "rome", &[]);
    let into = kept.path().join("all.crt");
    let (a, b, all) = (paris.join("ca.crt"), rome.join("ca.crt"), into.display());

    let said = certs(&format!(
        "bundle {} {} {} --into {all}",
        a.display(),
        b.display(),
        a.display()
    ));
    let again = certs(&format!("bundle {} --into {all}", a.display()));

    assert_eq!(
        (said.code, said.stdout),
        (0, format!("{all}: 2 authorities\n")),
        "{}",
        said.stderr
    );
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("all.crt: exists"), "{}", again.stderr);
    assert_eq!(
        Certificate::read_all(&fs::read(&into).unwrap())
            .unwrap()
            .len(),
        2
    );
    let oslo = kept.path().join("oslo");
    let key = rome.join("ca.key").display().to_string();
    make(
        &oslo,
        "oslo",
        &["--ca-cert", &all.to_string(), "--ca-key", &key],
    );
    assert_eq!(read(&oslo, "server.crt")[0].issuer, "Tombolo CA of rome");
}

#[test]
fn secrets_have_ciliums_names_and_the_mode_of_authentication_chooses_the_remote_one() {
    for (mode, user) in [
        ("legacy", "remote"),
        ("migration", "remote"),
        ("cluster", "remote-paris"),
    ] {
        let (_kept, dir) = temporary();
        let yaml = make(
            &dir,
            "paris",
            &["-o", "secrets", "--auth-mode", mode, "-n", "mesh"],
        );

        let secrets: Vec<Secret> = yaml
            .split("---\n")
            .skip(1)
            .map(|text| serde_saphyr::from_str(text).unwrap())
            .collect();
        let expected = BTreeMap::from([
            ("clustermesh-apiserver-admin-cert", "admin-paris"),
            ("clustermesh-apiserver-local-cert", "local-paris"),
            ("clustermesh-apiserver-remote-cert", user),
            ("clustermesh-apiserver-server-cert", "server"),
        ]);
        assert_eq!(secrets.len(), expected.len(), "{yaml}");
        for secret in secrets {
            let data = secret.data.unwrap();
            let file = expected[secret.metadata.name.as_deref().unwrap()];
            assert_eq!(secret.metadata.namespace.as_deref(), Some("mesh"));
            assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
            assert_eq!(
                data.keys().collect::<Vec<_>>(),
                ["ca.crt", "tls.crt", "tls.key"]
            );
            assert_eq!(
                data["tls.crt"].0,
                fs::read(dir.join(format!("{file}.crt"))).unwrap()
            );
            assert_eq!(
                data["tls.key"].0,
                fs::read(dir.join(format!("{file}.key"))).unwrap()
            );
            assert_eq!(data["ca.crt"].0, fs::read(dir.join("ca.crt")).unwrap());
        }
    }
}
