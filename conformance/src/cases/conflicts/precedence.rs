//! Whose export counts over time, and how conflicts are told.

use std::sync::Mutex;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use tombolo_api::{
    conditions::{
        CONFLICT, REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT, REASON_PORT_CONFLICT,
        REASON_SESSION_AFFINITY_CONFIG_CONFLICT, REASON_TYPE_CONFLICT,
    },
    v1beta1::{ServiceExport, ServiceImport},
};

use super::{BOTH, conflict_is_over, disagree, in_conflict};
use crate::{
    bugs::Bug,
    case::{Case, Failure, Outcome},
    cases::importing::content::{listed, listing},
    context::Context,
    expect::{Seen, conditions, describe, port_texts},
    objects::{self, HELLO, port, service_with, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "conflicts/oldest-leaves",
        title: "When the oldest export goes there is always an import, its type changes once at most, the conflict ends",
        rules: &[Rule(34), Rule(54), Rule(155)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-12", "kubernetes/enhancements#5463")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(oldest_leaves(ctx)),
    },
    Case {
        id: "conflicts/same-age",
        title: "Exports that come at the same time give the same import in every cluster",
        rules: &[Rule(140), Rule(144)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "both exports are in conflict",
        run: |ctx| Box::pin(same_age(ctx)),
    },
    Case {
        id: "conflicts/stable",
        title: "A conflict and its import stay to the letter as long as nothing that matters changes",
        rules: &[Rule(142), Rule(144)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-11", "cilium#34439")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(stable(ctx)),
    },
    Case {
        id: "conflicts/all-reasons",
        title: "Exports that differ in several things name all of them, joined by commas",
        rules: &[Rule(154)],
        features: &[],
        upstream: None,
        bugs: &[],
        fails_first: "the import appears",
        run: |ctx| Box::pin(all_reasons(ctx)),
    },
    Case {
        id: "conflicts/message",
        title: "The message names what is in conflict, the value that is used and the cluster that it comes from; a count is right",
        rules: &[Rule(174)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-03", "cilium#43251")],
        fails_first: "the import appears",
        run: |ctx| Box::pin(message(ctx)),
    },
];

async fn oldest_leaves(ctx: &Context) -> Outcome {
    let second = objects::headless(upstream_ports());
    disagree(ctx, objects::service(upstream_ports()), second).await?;
    in_conflict(ctx, REASON_TYPE_CONFLICT).await?;

    ctx.unexport(0).await?;

    let types: Vec<_> = ctx.everywhere().map(|_| Mutex::new(Vec::new())).collect();
    let types = &types;
    let watched = |cluster: usize| async move {
        let import = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
        let mut types = types[cluster]
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if types.last() != Some(&import.spec.type_) {
            types.push(import.spec.type_);
        }
        // The first is where it began.
        if types.len() <= 2 {
            return Ok(());
        }
        Err(format!("types one after the other: {types:?}").into())
    };
    let step = "there is always an import, of one type and then of one other at most";
    let expected = "an import whose type changes once at most";
    ctx.stays_in(step, ctx.everywhere(), expected, watched)
        .await?;
    conflict_is_over(ctx, &[1]).await?;
    same_everywhere(ctx, 1).await
}

async fn same_age(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let second = objects::service(vec![port("tcp", "TCP", 43), port("extra", "TCP", 142)]);

    let first = ctx.export(0, objects::service(upstream_ports()));
    futures::future::try_join(first, ctx.export(1, second)).await?;

    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    same_everywhere(ctx, 2).await
}

/// Waits until all clusters have the same import of so many exporters.
async fn same_everywhere(ctx: &Context, exporters: usize) -> Outcome {
    let step = "every cluster comes to the same import";
    let content = |import: &ServiceImport| {
        let families = import.spec.ip_families.clone();
        (
            import.spec.type_.clone(),
            port_texts(import),
            families,
            listed(import),
        )
    };
    ctx.until(step, 0, "the same in all", || async move {
        let mut imports = Vec::new();
        for cluster in ctx.everywhere() {
            imports.push(ctx.import(cluster).await?.ok_or("no ServiceImport")?);
        }
        let agree = imports
            .iter()
            .all(|import| content(import) == content(&imports[0]));
        if agree && listing(exporters)(&imports[0]).is_ok() {
            return Ok(());
        }
        let all: Vec<_> = imports.iter().map(describe).collect();
        Err(all.join("; ").into())
    })
    .await
}

async fn stable(ctx: &Context) -> Outcome {
    let second = service_with(|spec| {
        spec.ports = Some(vec![port("tcp", "TCP", 43), port("udp", "UDP", 42)]);
    });
    disagree(ctx, objects::service(upstream_ports()), second).await?;
    in_conflict(ctx, REASON_PORT_CONFLICT).await?;
    let step = "the import has IPs and both exporters";
    let imports = ctx
        .imports_until(step, ctx.everywhere(), "them", |import| {
            crate::cases::importing::content::ips_match(import)?;
            listing(2)(import)
        })
        .await?;
    let mut told = Vec::new();
    for cluster in BOTH {
        told.push(conditions_of(ctx, cluster).await?);
    }

    let (imports, told) = (&imports, &told);
    let same_import = |cluster: usize| async move {
        let now = ctx.import(cluster).await?.ok_or("no ServiceImport")?;
        if now.spec == imports[cluster].spec {
            return Ok(());
        }
        Err(describe(&now).into())
    };
    let same_words = |cluster: usize| async move {
        let now = read_conditions(ctx, cluster).await?;
        if now == told[cluster] {
            return Ok(());
        }
        Err(format!("{now:?}").into())
    };
    let (step, words) = ("the import stays the same", "the conditions stay the same");
    futures::future::try_join3(
        ctx.stays_in(step, ctx.everywhere(), "the same spec", same_import),
        ctx.stays_in(words, BOTH, "the same words and times", same_words),
        touch(ctx),
    )
    .await
    .map(|_| ())
}

/// Changes what is not exported, so that implementations look at everything again.
async fn touch(ctx: &Context) -> Outcome {
    for round in 0..4 {
        for cluster in BOTH {
            let label = json!({ "metadata": { "labels": { "touched": round.to_string() } } });
            ctx.patch_service(cluster, &label).await?;
            ctx.patch_export(cluster, &label).await?;
        }
    }
    Ok(())
}

async fn conditions_of(ctx: &Context, cluster: usize) -> Result<Vec<Condition>, Failure> {
    let read = || read_conditions(ctx, cluster);
    ctx.until("read the conditions", cluster, "an export", read)
        .await
}

async fn read_conditions(ctx: &Context, cluster: usize) -> Result<Vec<Condition>, Seen> {
    let export: ServiceExport = ctx.api(cluster).get(HELLO).await?;
    Ok(conditions(&export))
}

async fn all_reasons(ctx: &Context) -> Outcome {
    let second = service_with(|spec| {
        spec.ports = Some(vec![port("tcp", "TCP", 43)]);
        spec.internal_traffic_policy = Some("Local".to_owned());
        let config = spec.session_affinity_config.get_or_insert_default();
        config.client_ip.get_or_insert_default().timeout_seconds = Some(20);
    });
    disagree(ctx, objects::service(upstream_ports()), second).await?;

    let reasons = [
        REASON_PORT_CONFLICT,
        REASON_SESSION_AFFINITY_CONFIG_CONFLICT,
        REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT,
    ];
    let step = "both exports name every conflict";
    ctx.conflicts_until(step, BOTH, &reasons, &[])
        .await
        .map(|_| ())
}

/// The second cluster exports first: a message that always names the first cluster is wrong.
async fn message(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let (_, oldest) = ctx
        .export(1, objects::service(vec![port("http", "TCP", 80)]))
        .await?;
    let step = "the import appears";
    let imports = ctx
        .imports_until(step, ctx.everywhere(), "one cluster", listing(1))
        .await?;
    let winner = listed(&imports[0]).remove(0);

    let second = objects::service(vec![port("http", "TCP", 8080)]);
    ctx.export_later(0, second, &oldest).await?;

    for cluster in BOTH {
        let reason = Some(REASON_PORT_CONFLICT);
        let step = "both exports are in conflict";
        let condition = ctx
            .condition_until(step, cluster, (CONFLICT, "True"), reason)
            .await?;
        let words: Vec<_> = words(&condition.message).collect();
        let names = |word: &str| words.contains(&word);
        if !(names("http") && names("80") && names(&winner)) {
            let step = "the message tells what to know";
            let expected = format!("`http`, `80` and `{winner}`");
            return Err(ctx.failure(step, cluster, expected, condition.message));
        }
        // No rule asks for a count; the KEP's example has one. Who gives it must count right.
        if counts(&condition.message).any(|count| count != ("1", "2")) {
            let step = "a count of clusters is right";
            let expected = "`1/2 clusters`, or no count";
            return Err(ctx.failure(step, cluster, expected, condition.message));
        }
    }
    Ok(())
}

/// Every count of clusters in a message: `("1", "2")` for `1/2 clusters disagree`.
fn counts(message: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|it| it.is_ascii_digit());
    let words = message.split_whitespace();
    let pairs = words.clone().zip(words.skip(1));
    pairs.filter_map(move |(word, next)| {
        let (some, all) = word.split_once('/')?;
        let counts = next.starts_with("cluster") && is_number(some) && is_number(all);
        counts.then_some((some, all))
    })
}

/// The words of a message: runs of letters, digits and dashes.
fn words(message: &str) -> impl Iterator<Item = &str> {
    message.split(|letter: char| !letter.is_alphanumeric() && letter != '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_clusters_are_found_and_nothing_else() {
        let message = "Conflicting type. 2/5 clusters disagree. Using 42/TCP, 1/2, from 10/8 networks. 1/3 clusters, as of 1/2/2026";

        let found: Vec<_> = counts(message).collect();

        assert_eq!(found, [("2", "5"), ("1", "3")]);
        assert_eq!(counts("Ports differ in a/b clusters").count(), 0);
    }
}
