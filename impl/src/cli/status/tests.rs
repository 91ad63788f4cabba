use hyper::Uri;

use super::{
    gather::{Asked, Gathered, Target},
    report::{self, Report},
    text::{self, Style},
    *,
};
use crate::status::{
    Answer, Finding, Level,
    answer::Peer,
    testkit::{late, lost, mesh, operator, peer, store},
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
