//! What the program says to bad input: file or flag, field, what was expected, what to do; and exit code 2. Needs no cluster.

use std::{
    fs::{self, OpenOptions},
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process, kill_process_group},
};
use serde_json::json;

fn run(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(arguments.split_whitespace())
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .expect("the program runs")
}

/// Runs, expects exit code 2 and nothing on standard output, returns the message.
fn refused(arguments: &str) -> String {
    let output = run(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
    assert!(output.stdout.is_empty(), "{arguments}");
    message
}

/// Asserts that the message names all of these.
fn names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

fn file(name: &str, content: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&path, content).expect("the test's directory is writable");
    path
}

const MESH: &str = "run mesh --cluster-name a --cluster-id 1";
const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: east
clusters: [{name: east, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: admin, user: {token: none}}]
contexts: [{name: east, context: {cluster: east, user: admin}}]
";

fn mesh_with_kubeconfig(file: &str, more: &str) -> String {
    format!("{MESH} --etcd-endpoints http://127.0.0.1:1 --kubeconfig {file} {more}")
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let message = refused(&mesh_with_kubeconfig("/nowhere/config", ""));

    names(
        &message,
        &[
            "/nowhere/config",
            "No such file",
            "expected a readable kubeconfig",
            "check the path",
        ],
    );
}

#[test]
fn a_kubeconfig_that_is_not_yaml_is_shown_where_it_breaks() {
    let path = file("broken-kubeconfig", "apiVersion: v1\nclusters: [oops\n");

    let message = refused(&mesh_with_kubeconfig(&path, ""));

    names(&message, &[&path, "line 2", "mend the file"]);
}

#[test]
fn a_context_that_is_not_in_the_kubeconfig_is_named() {
    let path = file("kubeconfig", KUBECONFIG);

    let message = refused(&mesh_with_kubeconfig(&path, "--context west"));

    names(&message, &[&path, "west", "--context NAME"]);
}

#[test]
fn a_certificate_that_the_kubeconfig_names_and_that_is_missing_is_named() {
    let text = KUBECONFIG.replace(
        "{token: none}",
        "{client-certificate: /nowhere/crt, client-key: /nowhere/key}",
    );
    let path = file("kubeconfig-without-certificate", &text);

    let message = refused(&mesh_with_kubeconfig(&path, ""));

    names(&message, &["/nowhere/"]);
}

#[test]
fn outside_of_a_pod_a_kubeconfig_is_asked_for() {
    let message = refused(&format!("{MESH} --etcd-endpoints http://127.0.0.1:1"));

    names(&message, &["not a pod", "--kubeconfig FILE"]);
}

#[test]
fn a_broken_etcd_file_is_named_with_its_field() {
    let no_list = file("etcd-no-list", "endpoints: 5\n");
    let no_url = file("etcd-no-url", "endpoints:\n- ftp://rome\n");
    let no_key = file(
        "etcd-no-key",
        "endpoints:\n- https://rome:2379\ncert-file: /nowhere/crt\n",
    );
    let kubeconfig = file("kubeconfig-for-etcd", KUBECONFIG);

    for (path, parts) in [
        (&no_list, ["endpoints", "line 1", "expected"]),
        (&no_url, ["endpoints", "ftp", "expected at least one URL"]),
        (&no_key, ["key-file", "expected", "cert-file"]),
    ] {
        let message = refused(&format!(
            "{MESH} --etcd-config {path} --kubeconfig {kubeconfig}"
        ));
        names(&message, &parts);
        names(&message, &[path]);
    }
}

#[test]
fn a_missing_directory_of_peers_is_named() {
    let kubeconfig = file("kubeconfig-for-peers", KUBECONFIG);

    for role in ["operator", "mesh --etcd-endpoints http://127.0.0.1:1"] {
        let message = refused(&format!(
            "run {role} --cluster-name a --cluster-id 1 --health-address 127.0.0.1:0 --clustermesh-config /nowhere/peers --kubeconfig {kubeconfig}"
        ));

        names(&message, &["/nowhere/peers", "--clustermesh-config"]);
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let message =
        refused("run mesh --cluster-name a --cluster-id 300 --etcd-endpoints http://127.0.0.1:1");

    names(
        &message,
        &[
            "--cluster-id 300",
            "expected 1 to 255",
            "--max-connected-clusters",
        ],
    );
}

#[test]
fn a_log_filter_that_cannot_be_read_is_refused() {
    let message = refused(&format!(
        "{MESH} --etcd-endpoints http://127.0.0.1:1 --log-level [["
    ));

    names(&message, &["--log-level", "expected a level"]);
}

#[test]
fn the_crds_are_printed_as_yaml() {
    let output = run("crds");

    let text = String::from_utf8(output.stdout).expect("YAML is text");
    assert!(output.status.success());
    assert_eq!(text.matches("kind: CustomResourceDefinition").count(), 2);
}

#[cfg(not(feature = "mutants"))]
#[test]
fn a_normal_build_knows_no_mutant() {
    let program = env!("CARGO_BIN_EXE_tombolo");

    let output = Command::new(program)
        .arg("crds")
        .env("TOMBOLO_MUTANT", "newest-wins")
        .output()
        .expect("the program runs");

    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{output:?}");
    let bytes = fs::read(program).expect("the program is readable");
    let text = String::from_utf8_lossy(&bytes);
    for part in ["TOMBOLO_MUTANT", "newest-wins", "wrong on purpose"] {
        assert!(!text.contains(part), "{program} contains {part:?}");
    }
    assert!(
        text.contains("TOMBOLO_LOG"),
        "{program} is not read as expected"
    );
}

/// Runs with a pipe as standard output or error that nobody reads any more.
fn unheard(arguments: &str, error_too: bool) -> Option<i32> {
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        writer
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_tombolo"));
    command.args(arguments.split_whitespace()).stdout(closed());
    if error_too {
        command.stderr(closed());
    }
    command
        .env_remove("KUBECONFIG")
        .status()
        .expect("the program runs")
        .code()
}

#[test]
fn nobody_who_listens_is_no_reason_to_crash() {
    assert_eq!(unheard("crds", false), Some(1));
    assert_eq!(unheard("crds", true), Some(1));
    let refused = "connect east west --kubeconfig /nowhere/config";
    assert_eq!(unheard(refused, true), Some(2));
}

#[test]
fn an_empty_variable_names_no_kubeconfig() {
    for command in [
        "status",
        "dns configure --check",
        "explain conflict web -n shop",
        "connect a b",
        MESH,
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(command.split_whitespace())
            .env("KUBECONFIG", "")
            .env("HOME", "/nowhere")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()
            .expect("the program runs");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            !message.contains("a value is required"),
            "{command}: {message}"
        );
    }
}

#[test]
fn who_waits_for_an_invitation_from_a_pipe_can_be_interrupted() {
    let kubeconfig = file("kubeconfig-of-a-guest", KUBECONFIG);
    let pipe = file(&format!("invitation-{}", std::process::id()), "");
    fs::remove_file(&pipe).expect("it is there");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let waiting = Command::new(env!("CARGO_BIN_EXE_tombolo"))
        .args(["connect", "east", "--accept", &pipe])
        .args(["--kubeconfig", &kubeconfig])
        .stderr(Stdio::null())
        .spawn();
    let mut waiting = waiting.expect("the program runs");

    // It can be opened without waiting as soon as somebody reads.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut open = OpenOptions::new();
    open.write(true).custom_flags(nonblocking);
    let writer = in_time(|| open.open(&pipe).ok());
    let _gone_meanwhile = kill_process(Pid::from_child(&waiting), Signal::INT);
    let ended = in_time(|| waiting.try_wait().expect("it can be waited for"));

    if ended.is_none() {
        waiting.kill().expect("it can be ended");
        waiting.wait().expect("it can be waited for");
    }
    fs::remove_file(&pipe).expect("it is there");
    assert!(writer.is_some(), "nobody reads the pipe");
    assert_eq!(ended.and_then(|it| it.code()), Some(130));
}

/// Ctrl-C in a terminal ends the program that hands out credentials, too.
#[test]
fn an_interrupted_credential_plugin_is_not_told_as_a_failure() {
    for command in ["status", "dns configure", "connect east west"] {
        let name = format!("plugin-{}-{}", command.len(), std::process::id());
        let asked = file(&name, "");
        fs::remove_file(&asked).expect("it is there");
        let user = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never",
            "args": ["-c", "touch \"$0\" && exec sleep 60", &asked] });
        let context = json!({ "cluster": "east", "user": "admin" });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "east",
            "clusters": [{ "name": "east", "cluster": { "server": "https://127.0.0.1:1" } }],
            "users": [{ "name": "admin", "user": { "exec": user } }],
            "contexts": [{ "name": "east", "context": context }, { "name": "west", "context": context }],
        });
        let kubeconfig = file(&format!("{name}-kubeconfig"), &kubeconfig.to_string());
        let asking = Command::new(env!("CARGO_BIN_EXE_tombolo"))
            .args(command.split_whitespace())
            .args(["--kubeconfig", &kubeconfig])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the program runs");

        let plugin = in_time(|| {
            fs::exists(&asked)
                .expect("it can be looked for")
                .then_some(())
        });
        kill_process_group(Pid::from_child(&asking), Signal::INT).expect("it runs");

        let ended = asking.wait_with_output().expect("it can be waited for");
        fs::remove_file(&kubeconfig).expect("it is there");
        assert!(
            plugin.is_some(),
            "{command}: the plugin did not run: {ended:?}"
        );
        fs::remove_file(&asked).expect("it is there");
        assert_eq!(ended.status.code(), Some(130), "{command}: {ended:?}");
    }
}

/// What is there within 30 s.
fn in_time<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let found = look();
        if found.is_some() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
