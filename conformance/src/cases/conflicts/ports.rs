//! Ports that look alike and are not, or differ in less than their number.

use tombolo_api::conditions::REASON_PORT_CONFLICT;

use super::{disagree, in_conflict, undisturbed};
use crate::{
    bugs::Bug,
    case::{Case, Outcome},
    context::Context,
    expect::with_ports,
    objects::{self, port},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "conflicts/protocols",
        title: "One number for two protocols is two ports, though the exports differ",
        rules: &[Rule(140), Rule(145), Rule(147)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-07", "KEP-1645#147")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(protocols(ctx)),
    },
    Case {
        id: "conflicts/app-protocol",
        title: "One port with two application protocols: the oldest export's stays, PortConflict on both exports",
        rules: &[Rule(140), Rule(141), Rule(144), Rule(145)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-08", "lighthouse@3136b91")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(app_protocol(ctx)),
    },
];

async fn protocols(ctx: &Context) -> Outcome {
    let first = objects::service(vec![port("dns", "UDP", 53)]);
    let second = objects::service(vec![port("dns-tcp", "TCP", 53)]);
    let before = disagree(ctx, first, second).await?;

    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    let both = vec!["dns 53/UDP".to_owned(), "dns-tcp 53/TCP".to_owned()];
    let step = "the import has both ports";
    let after = ctx
        .imports_until(step, ctx.everywhere(), "both ports", with_ports(both))
        .await?;
    undisturbed(ctx, &before, &after)
}

async fn app_protocol(ctx: &Context) -> Outcome {
    let with_app = |app: &str| {
        let mut http = port("http", "TCP", 80);
        http.app_protocol = Some(app.to_owned());
        objects::service(vec![http])
    };
    let before = disagree(ctx, with_app("http"), with_app("kubernetes.io/h2c")).await?;

    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    let oldest = vec!["http 80/TCP http".to_owned()];
    let step = "the import has the oldest export's application protocol";
    let accept = with_ports(oldest);
    let after = ctx
        .imports_until(step, ctx.everywhere(), "appProtocol http", accept)
        .await?;
    undisturbed(ctx, &before, &after)
}
