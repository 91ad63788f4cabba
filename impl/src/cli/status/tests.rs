use hyper::Uri;
use serde_json::Value;

use super::{
    gather::{Asked, Gathered, Target},
    report::{self, Report},
    text::{self, Style},
    *,
};
use crate::status::{
    Answer, Finding, Level,
    answer::Peer,
    testkit::{copier, late, lost, mesh, operator, peer, standby, store},
};

const PLAIN: Style = Style {
    all: false,
    colour: false,
};

fn at(port: u16, answer: Result<Answer, &str>) -> Asked {
    let address = format!("http://127.0.0.1:{port}");
    let target = Target::Address(address.parse::<Uri>().unwrap());
    match answer {
        Ok(answer) => Asked {
            target,
            answer: Ok(Box::new(answer)),
        },
        Err(error) => Asked::failed(target, error),
    }
}

fn report(asked: Vec<Asked>) -> Report {
    report::build(Gathered {
        asked,
        findings: Vec::new(),
    })
}

#[test]
fn all_is_well() {
    let report = report(vec![
        at(9879, Ok(operator(vec![peer("oslo", 3), peer("rome", 2)]))),
        at(9880, Ok(mesh(store()))),
    ]);

    insta::assert_snapshot!(text::render(&report, PLAIN));
}

#[test]
fn one_peer_is_lost_one_is_late_and_one_process_is_silent() {
    let report = report(vec![
        at(
            9879,
            Ok(operator(vec![
                peer("bern", 4),
                late("oslo", 3),
                lost("rome", 2),
            ])),
        ),
        at(9880, Err("no connection: connection refused")),
    ]);

    insta::assert_snapshot!(text::render(&report, PLAIN));
}

/// 511 peers, of which two have trouble.
fn many() -> Vec<Peer> {
    let mut peers: Vec<_> = (1..=511).map(|id| peer(&format!("c{id:03}"), id)).collect();
    peers[6] = lost("c007", 7);
    peers[499] = late("c500", 500);
    peers
}

#[test]
fn of_511_peers_only_those_with_trouble_are_listed() {
    let report = report(vec![at(9879, Ok(operator(many())))]);

    insta::assert_snapshot!(text::render(&report, PLAIN));
}

#[test]
fn all_511_peers_are_listed_when_asked_for() {
    let report = report(vec![at(9879, Ok(operator(many())))]);
    let style = Style { all: true, ..PLAIN };

    let text = text::render(&report, style);

    let listed = text.lines().filter(|line| line.starts_with(" c")).count();
    assert_eq!(listed, 511);
}

#[test]
fn what_is_written_as_json_has_the_documented_members() {
    let report = report(vec![
        at(9879, Ok(operator(vec![lost("rome", 2)]))),
        at(9880, Ok(mesh(store()))),
    ]);

    insta::assert_snapshot!(render::json(&report).unwrap());
}

#[test]
fn colours_are_for_terminals_only_and_for_the_verdict_only() {
    let report = report(vec![at(9879, Ok(mesh(store())))]);
    let coloured = Style {
        colour: true,
        ..PLAIN
    };

    let (plain, colour) = (
        text::render(&report, PLAIN),
        text::render(&report, coloured),
    );

    assert!(!plain.contains('\u{1b}'));
    assert!(
        colour.starts_with("\u{1b}[1;32mWELL\u{1b}[0m: "),
        "{colour}"
    );
    assert_eq!(colour.matches('\u{1b}').count(), 2);
}

#[test]
fn what_peers_say_cannot_move_the_cursor() {
    let mut evil = lost("rome", 2);
    evil.status.last_error = Some("a\u{1b}[2Jb".to_owned());
    evil.status.endpoint = "http://x\u{1b}[31m".to_owned();

    let text = text::render(&report(vec![at(1, Ok(operator(vec![evil])))]), PLAIN);

    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn every_verdict_has_its_exit_code() {
    let codes = [
        (Verdict::Problem, 3),
        (Verdict::Unknown, 4),
        (Verdict::Behind, 5),
    ];
    for (verdict, code) in codes {
        let error = NotWell {
            verdict,
            summary: String::new(),
        };
        assert_eq!(error.exit_code(), code);
        assert!(
            HELP.contains(&format!("\n  {code}  ")),
            "{code} is documented"
        );
    }
}

#[test]
fn an_answer_to_another_question_is_unknown() {
    let text = serde_json::to_string(&operator(Vec::new())).unwrap();
    let target = || Target::Address("http://127.0.0.1:9879".parse().unwrap());

    assert!(Asked::parse(target(), &text, "1").answer.is_ok());
    let stale = Asked::parse(target(), &text, "2");
    let error = stale.answer.clone().unwrap_err();
    assert!(error.contains("earlier question"), "{error}");
    assert_eq!(report(vec![stale]).verdict, Verdict::Unknown);
}

#[test]
fn an_answer_that_lacks_a_member_is_unknown() {
    let text = serde_json::to_string(&operator(Vec::new())).unwrap();
    let target = Target::Address("http://127.0.0.1:9879".parse().unwrap());
    let lacking = text.replace("\"stuck\":[],", "");
    assert_ne!(lacking, text);

    let asked = Asked::parse(target, &lacking, "1");

    assert_eq!(report(vec![asked]).verdict, Verdict::Unknown);
}

/// Members that may be left out of what a process says of a peer with which all is well.
const MAY_LACK: [&str; 2] = ["storeId", "lastContact"];

/// Where the members of objects are, as JSON pointers.
fn members(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let at = format!("{at}/{name}");
                members(value, &at, found);
                found.push(at);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter().enumerate() {
                members(value, &format!("{at}/{number}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn verdict_on(answer: &Value) -> Verdict {
    let target = Target::Address("http://127.0.0.1:9879".parse().unwrap());
    report(vec![Asked::parse(target, &answer.to_string(), "1")]).verdict
}

#[test]
fn an_answer_that_lacks_any_of_its_members_is_never_well() {
    for answer in [
        operator(vec![peer("rome", 2)]),
        copier(vec![peer("rome", 2)]),
    ] {
        let whole = serde_json::to_value(&answer).unwrap();
        assert_eq!(verdict_on(&whole), Verdict::Well);
        let mut all = Vec::new();
        members(&whole, "", &mut all);
        assert!(all.len() > 60, "{all:?}");

        for pointer in all {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            // What a cluster-config lacks has a meaning of its own.
            if MAY_LACK.contains(&name) || parent.ends_with("/config/capabilities") {
                continue;
            }
            let mut lacking = whole.clone();
            let object = lacking.pointer_mut(parent).unwrap();
            object.as_object_mut().unwrap().remove(name).unwrap();
            assert_ne!(verdict_on(&lacking), Verdict::Well, "without {pointer}");
        }
    }
}

#[test]
fn an_answer_with_an_empty_list_is_never_well_unless_it_is_one_of_what_is_wrong_or_of_peers() {
    let empty = ["/stuck", "/peers/peers"];
    for answer in [
        operator(vec![peer("rome", 2)]),
        copier(vec![peer("rome", 2)]),
    ] {
        let whole = serde_json::to_value(&answer).unwrap();
        let mut all = Vec::new();
        members(&whole, "", &mut all);
        let lists = all
            .iter()
            .filter(|at| whole.pointer(at).unwrap().is_array());
        for at in lists.filter(|at| !empty.contains(&at.as_str())) {
            let mut emptied = whole.clone();
            let list = emptied.pointer_mut(at).unwrap();
            if *list == serde_json::json!([]) || at.ends_with("/keys") {
                continue;
            }
            *list = serde_json::json!([]);
            assert_ne!(verdict_on(&emptied), Verdict::Well, "{at} is empty");
        }
    }
}

#[test]
fn a_standby_a_leader_with_work_and_a_copier_are_shown() {
    let mut by = operator(vec![peer("rome", 2)]);
    by.leadership = Some(standby());
    let mut busy = operator(vec![peer("rome", 2)]);
    busy.queues[0].waiting = 4;
    busy.queues[0].oldest_seconds = Some(75.0);
    busy.queues[1].retrying = 1;
    busy.api_server.error = Some("the connection is silent for 3s".to_owned());
    let mut copying = copier(vec![peer("oslo", 3), peer("rome", 2)]);
    let copies = copying.copies.as_mut().unwrap();
    copies.peers[1].canaries.truncate(4);
    copies.peers[1].steps = 2;
    let report = report(vec![at(1, Ok(by)), at(2, Ok(busy)), at(3, Ok(copying))]);

    insta::assert_snapshot!(text::render(&report, PLAIN));
}

#[test]
fn a_round_that_was_too_short_does_not_replace_what_was_known() {
    let round = |answer| report(vec![at(9880, answer)]);
    let behind = || {
        let mut store = store();
        store.waiting = 2;
        round(Ok(mesh(store)))
    };
    let silent = || round(Err("no answer within 40ms"));
    let (short, long) = (Duration::from_millis(40), ROUND_MIN);

    assert_eq!(informed(silent(), Some(behind()), short), behind());
    assert_eq!(informed(silent(), Some(behind()), long), silent());
    assert_eq!(informed(silent(), None, short), silent());
    let well = round(Ok(mesh(store())));
    assert_eq!(informed(well.clone(), Some(behind()), short), well);
}

#[test]
fn what_is_found_beyond_processes_counts() {
    let finding = Finding::new(
        Level::Unknown,
        "cluster",
        "no operator has answered",
        "look",
    );
    let report = report::build(Gathered {
        asked: vec![at(9880, Ok(mesh(store())))],
        findings: vec![finding],
    });

    assert_eq!(report.verdict, Verdict::Unknown);
}

#[test]
fn an_address_is_a_plain_http_url_without_a_path() {
    assert!(address("http://127.0.0.1:9879").is_ok());
    assert!(address("http://[::1]:9879/").is_ok());
    for wrong in [
        "127.0.0.1:9879",
        "https://a:1",
        "http://",
        "http://a/v1/status",
        "x y",
    ] {
        let error = address(wrong).unwrap_err().to_string();
        assert!(error.contains("expected http://HOST:PORT"), "{error}");
    }
}
