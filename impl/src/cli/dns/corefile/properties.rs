//! Whatever the Corefile looks like: configuring it twice is configuring it once, and undoing it gives it back.

use proptest::prelude::*;

use super::{tests::zones, *};

fn blanks() -> impl Strategy<Value = String> {
    "[ \t]{1,4}"
}

fn comment() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "[ \t]{0,2}#[ -~é]{0,12}"]
}

/// A line of a plugin of which nothing has to be known.
fn other() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("errors".to_owned()),
        Just("forward . \"a { # }\" {\n  x y\n  }".to_owned()),
        Just("# kubernetes cluster.local {".to_owned()),
        Just(String::new()),
        "(cache|log|loop) [a-z0-9.]{1,8}",
    ]
}

/// The plugin, with or without what is to be added.
fn kubernetes() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("cluster.local"),
        Just("cluster.local."),
        Just("CLUSTER.local"),
        Just("\"cluster.local\""),
    ];
    let behind = prop::collection::vec(
        prop_oneof![
            Just("in-addr.arpa"),
            Just("10.0.0.0/8"),
            Just("other.org"),
            Just("clusterset.local")
        ],
        0..3,
    );
    let options = prop::option::of(prop::collection::vec(
        prop_oneof![
            Just("pods insecure"),
            Just("multicluster other.org"),
            Just("multicluster clusterset.local"),
            Just("# multicluster"),
            Just("ttl 30"),
        ],
        0..4,
    ));
    (name, behind, options, blanks(), comment()).prop_map(
        |(name, behind, options, blank, comment)| {
            let zones = [vec![name], behind].concat().join(&blank);
            let line = format!("kubernetes{blank}{zones}");
            match options {
                None => line + &comment,
                Some(options) => {
                    let end = format!("{comment}\n{blank}");
                    let inner = format!("{end}{blank}");
                    let options = options.into_iter().map(|it| format!("{inner}{it}"));
                    let options = options.collect::<Vec<_>>().concat();
                    format!("{line}{blank}{{{options}{end}}}{comment}")
                }
            }
        },
    )
}

fn corefile() -> impl Strategy<Value = String> {
    let keys = prop_oneof![
        Just(".:53"),
        Just("cluster.local:53, in-addr.arpa:53"),
        Just("cluster.local,\nip6.arpa"),
        Just(". .:5353"),
    ];
    let lines = || prop::collection::vec(other(), 0..4);
    (
        keys,
        lines(),
        kubernetes(),
        lines(),
        blanks(),
        comment(),
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(keys, front, kubernetes, back, blank, comment, (windows, ended))| {
                let plugins = [front, vec![kubernetes], back].concat();
                let plugins = plugins.join(&format!("\n{blank}"));
                let end = if ended { "\n" } else { "" };
                let text = format!("{comment}\n{keys} {{{comment}\n{blank}{plugins}\n}}{end}");
                if windows {
                    text.replace('\n', "\r\n")
                } else {
                    text
                }
            },
        )
}

/// A change that somebody else makes.
fn foreign(text: &str) -> String {
    format!("{text}\n# a change\nexample.org:53 {{\n    whoami\n}}\n")
}

proptest! {
    #[test]
    fn configuring_twice_is_configuring_once(text in corefile()) {
        let once = configure(&text, &zones()).unwrap().text;

        prop_assert_eq!(&configure(&once, &zones()).unwrap().text, &once);
    }

    #[test]
    fn undoing_gives_back_every_byte(text in corefile()) {
        let configured = configure(&text, &zones()).unwrap().text;

        if configured != text {
            prop_assert_eq!(undo(&configured, &text, &zones()).unwrap(), text);
        }
    }

    #[test]
    fn undoing_after_a_foreign_change_gives_back_every_byte_but_that(text in corefile()) {
        let configured = configure(&text, &zones()).unwrap().text;

        if configured != text {
            let back = undo(&foreign(&configured), &text, &zones()).unwrap();
            prop_assert_eq!(back, foreign(&text));
        }
    }

    #[test]
    fn nothing_is_taken_away_by_configuring(text in corefile()) {
        let configured = configure(&text, &zones()).unwrap().text;

        let mut rest = configured.bytes();
        prop_assert!(text.bytes().all(|byte| rest.any(|it| it == byte)), "{configured}");
    }

    #[test]
    fn no_text_panics(text in "[ -~\n\r\té#\"{}]{0,80}") {
        let _ = configure(&text, &zones());
        let _ = configure_node_local(&text, &zones());
        let _ = undo(&text, &text, &zones());
    }
}
