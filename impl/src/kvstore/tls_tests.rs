//! TLS against a real etcd, with the client file that Cilium writes: every way in which certificates can be wrong is refused with
//! a message that names the file and the cure, and is over once the files are mended.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use tombolo_testbed::patience;

use super::{
    KvStore,
    config::EtcdConfig,
    etcd::EtcdStore,
    testing::budget,
    testing_pki::{Authority, GOOD, SecureEtcd, replace},
};

/// A client with the file that Cilium would write for these endpoints, as the user `client`.
fn store(secure: &SecureEtcd, endpoint: &str, more: &str) -> EtcdStore {
    let dir = secure.dir.path().display();
    let text = format!(
        "endpoints:\n- {endpoint}\ntrusted-ca-file: {dir}/ca.crt\nkey-file: {dir}/client.key\ncert-file: {dir}/client.crt\n{more}"
    );
    let file = secure.file("rome");
    fs::write(&file, text).unwrap();
    EtcdStore::new(EtcdConfig::read(&file).unwrap())
}

/// An etcd with a client that is connected and one that is not yet, with the same files.
async fn connected() -> (SecureEtcd, EtcdStore) {
    let secure = SecureEtcd::start("127.0.0.1");
    client(&secure, &secure.authority, GOOD);
    let first = store(&secure, &secure.etcd.url(), "");
    SecureEtcd::until_connected(&first).await;
    let second = store(&secure, &secure.etcd.url(), "");
    (secure, second)
}

fn client(secure: &SecureEtcd, authority: &Authority, hours: super::testing_pki::Hours) {
    authority.sign(secure.dir.path(), "client", "remote-paris", &[], hours);
}

/// What the store says to a call; the client file comes first, since its name is the peer's, unless a TLS file is broken.
async fn refused(store: &EtcdStore, reason: &str, parts: &[&str]) {
    for attempt in 0..5 {
        let error = store.get("a").await.unwrap_err();
        assert_eq!(error.reason(), reason, "attempt {attempt}: {error}");
        for part in parts {
            let text = error.to_string();
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}

/// The store is usable at the next attempt once the files are mended.
async fn recovers(store: &EtcdStore) {
    let mended = Instant::now();
    store.get("a").await.expect("the mended files are read");
    let took = mended.elapsed();
    println!("recovered after {took:?}");
    let busy = Duration::from_millis(1500) * patience();
    assert!(took < Duration::from_millis(500) + busy, "{took:?}");
}

#[tokio::test]
async fn a_client_of_an_unknown_authority_is_refused_until_it_is_renewed() {
    let (secure, store) = connected().await;
    client(&secure, &Authority::new(), GOOD);

    let file = secure.file("client.crt").display().to_string();
    let parts = [
        "/rome: https://127.0.0.1",
        "the server refuses the client certificate",
        &file,
        "of remote-paris, signed by mesh authority",
        "add that authority to those that the server trusts",
    ];
    refused(&store, "TlsRefused", &parts).await;

    client(&secure, &secure.authority, GOOD);
    recovers(&store).await;
}

#[tokio::test]
async fn an_expired_or_early_client_certificate_is_named_with_its_date() {
    let (secure, store) = connected().await;

    client(&secure, &secure.authority, -48..-24);
    let parts = [
        "/client.crt of remote-paris expired at 20",
        "renew the file",
    ];
    refused(&store, "TlsRefused", &parts).await;
    client(&secure, &secure.authority, 24..48);
    let parts = [
        "/client.crt of remote-paris is not valid before 20",
        "check the clocks",
    ];
    refused(&store, "TlsRefused", &parts).await;

    client(&secure, &secure.authority, GOOD);
    recovers(&store).await;
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_refused_until_the_bundle_has_it() {
    let (secure, store) = connected().await;
    let other = Authority::new();
    replace(&secure.file("ca.crt"), &other.pem);

    let parts = [
        "/rome: https://127.0.0.1",
        "the server's certificate is signed by none of the authorities",
        "/ca.crt (trusted-ca-file)",
    ];
    refused(&store, "TlsRefused", &parts).await;

    replace(&secure.file("ca.crt"), &(other.pem + &secure.authority.pem));
    recovers(&store).await;
}

#[tokio::test]
async fn an_expired_or_early_server_certificate_is_named_with_its_date() {
    let (secure, store) = connected().await;
    let server = |hours| {
        let dir = secure.dir.path();
        secure
            .authority
            .sign(dir, "server", "etcd", &["127.0.0.1"], hours);
    };

    // etcd reads its files at each handshake, too.
    server(-48..-24);
    let parts = [
        "/rome: ",
        "the server's certificate expired at 20",
        "renew the certificate of that etcd",
    ];
    refused(&store, "TlsRefused", &parts).await;
    server(24..48);
    let parts = [
        "the server's certificate is not valid before 20",
        "check the clocks",
    ];
    refused(&store, "TlsRefused", &parts).await;

    server(GOOD);
    recovers(&store).await;
}

#[tokio::test]
async fn a_server_of_another_name_is_refused_with_the_names_that_it_has() {
    let (secure, store) = connected().await;
    let server = |name| {
        let dir = secure.dir.path();
        secure.authority.sign(dir, "server", "etcd", &[name], GOOD);
    };

    server("oslo.mesh.cilium.io");
    let parts = [
        "the server's certificate is for",
        "oslo.mesh.cilium.io",
        "not for 127.0.0.1",
        "cilium-host-aliases",
    ];
    refused(&store, "TlsRefused", &parts).await;

    server("127.0.0.1");
    recovers(&store).await;
}

#[tokio::test]
async fn a_missing_broken_or_foreign_file_is_named_with_its_field() {
    let (secure, store) = connected().await;
    let read = |name: &str| fs::read_to_string(secure.file(name)).unwrap();
    let good = ["client.key", "client.crt", "ca.crt"].map(|name| (name, read(name)));
    let foreign = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    let half = &good[1].1[..200];
    let long = " ".repeat(2 * 1024 * 1024);
    let cases = [
        (
            "client.key",
            Some("no key"),
            "/client.key: key-file: holds no usable key",
        ),
        (
            "client.key",
            Some(foreign.as_str()),
            "/client.key: key-file: is not the key of",
        ),
        ("client.key", None, "/client.key: key-file: cannot be read"),
        (
            "client.crt",
            Some(broken),
            "/client.crt: cert-file: holds a broken certificate",
        ),
        (
            "client.crt",
            Some(""),
            "/client.crt: cert-file: holds no certificate",
        ),
        (
            "client.crt",
            Some(half),
            "its last line, END CERTIFICATE, is missing",
        ),
        ("client.crt", None, "/client.crt: cert-file: cannot be read"),
        (
            "ca.crt",
            Some(long.as_str()),
            "/ca.crt: trusted-ca-file: has 2097152 bytes",
        ),
        (
            "ca.crt",
            Some(""),
            "/ca.crt: trusted-ca-file: holds no certificate",
        ),
        ("ca.crt", None, "/ca.crt: trusted-ca-file: cannot be read"),
    ];

    for (name, text, expected) in cases {
        match text {
            Some(text) => replace(&secure.file(name), text),
            None => fs::remove_file(secure.file(name)).unwrap(),
        }
        refused(&store, "ConfigInvalid", &[expected]).await;
        for (name, text) in &good {
            replace(&secure.file(name), text);
        }
    }

    recovers(&store).await;
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let (secure, store) = connected().await;
    let key = secure.file("client.key");
    let good = fs::read_to_string(&key).unwrap();
    fs::remove_file(&key).unwrap();
    let made = Command::new("mkfifo").arg(&key).status().unwrap();
    assert!(made.success());

    let told = refused(
        &store,
        "ConfigInvalid",
        &["client.key: key-file: is no file"],
    );
    tokio::time::timeout(budget(), told).await.expect("in time");
    replace(&key, &good);

    recovers(&store).await;
}

#[tokio::test]
async fn a_client_without_certificate_is_told_what_the_server_asks_for() {
    let (secure, _) = connected().await;
    let mut config = secure.config("client");
    config.tls.as_mut().unwrap().client = None;

    let parts = [
        "the server asks for a client certificate",
        "cert-file and key-file",
    ];
    refused(&EtcdStore::new(config), "TlsRefused", &parts).await;
}

#[tokio::test]
async fn an_endpoint_without_tls_is_told_as_such() {
    let (secure, _) = connected().await;
    let plain = super::testing::Etcd::launch(Vec::new());
    let open = EtcdStore::new(EtcdConfig::from_urls(&[plain.url()]).unwrap());
    SecureEtcd::until_connected(&open).await;
    let endpoint = plain.url().replace("http", "https");
    let store = store(&secure, &endpoint, "");

    refused(
        &store,
        "TlsRefused",
        &[
            "/rome: https://127.0.0.1",
            "check that the endpoint is an etcd with TLS",
        ],
    )
    .await;
}

#[tokio::test]
async fn the_authority_is_changed_through_bundles_and_no_client_is_restarted() {
    let (mut secure, client_store) = connected().await;
    let (old, new) = (secure.authority.pem.clone(), Authority::new());
    let both = format!("{old}{}", new.pem);
    let again = async |secure: &SecureEtcd| {
        // Another connection, as after any loss.
        let store = secure.store("client");
        SecureEtcd::until_connected(&store).await;
        SecureEtcd::until_connected(&client_store).await;
    };

    // 1. Everybody trusts both. etcd reads the authorities of its clients when it starts, clients at each connect.
    replace(&secure.file("ca.crt"), &both);
    replace(&secure.file("clients.crt"), &both);
    secure.etcd.restart();
    again(&secure).await;
    // 2. Certificates are renewed, in any order.
    client(&secure, &new, GOOD);
    again(&secure).await;
    new.sign(secure.dir.path(), "server", "etcd", &["127.0.0.1"], GOOD);
    again(&secure).await;
    // 3. Nobody trusts the old one any more.
    replace(&secure.file("ca.crt"), &new.pem);
    replace(&secure.file("clients.crt"), &new.pem);
    secure.etcd.restart();
    again(&secure).await;

    client(&secure, &secure.authority, GOOD);
    let late = secure.store("client");
    refused(
        &late,
        "TlsRefused",
        &["the server refuses the client certificate"],
    )
    .await;
}

#[tokio::test]
async fn a_host_alias_is_connected_by_ip_and_checked_by_name() {
    let secure = SecureEtcd::start("rome.mesh.cilium.io");
    client(&secure, &secure.authority, GOOD);
    let endpoint = secure
        .etcd
        .url()
        .replace("127.0.0.1", "rome.mesh.cilium.io");
    let alias = "cilium-host-aliases:\n- hostname: rome.mesh.cilium.io\n  ips: [127.0.0.1]\n";

    SecureEtcd::until_connected(&store(&secure, &endpoint, alias)).await;
    let by_ip = store(&secure, &secure.etcd.url(), "").get("a").await;

    assert_eq!(by_ip.unwrap_err().reason(), "TlsRefused");
}
