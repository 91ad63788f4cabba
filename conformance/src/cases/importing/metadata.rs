//! Labels and annotations of an import, and namespaces side by side.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_json::json;
use tombolo_api::{
    conditions::{CONFLICT, REASON_NO_CONFLICTS},
    v1beta1::ServiceImport,
};

use crate::{
    bugs::Bug,
    case::{Case, Feature, Outcome},
    context::Context,
    expect::{port_texts, with_ports},
    objects::{self, port, upstream_ports},
    rules::Rule,
};

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        id: "importing/exported-metadata",
        title: "Labels and annotations that the export's spec names, and no others, are on the import",
        rules: &[Rule(17)],
        features: &[Feature::ExportedMetadata],
        upstream: Some("I9"),
        bugs: &[Bug("BC-19", "KEP-1645#17")],
        fails_first: "the import has what the export names",
        run: |ctx| Box::pin(exported_metadata(ctx)),
    },
    Case {
        id: "importing/two-namespaces",
        title: "Services of one name in two namespaces do not disturb each other",
        rules: &[Rule(3), Rule(11)],
        features: &[],
        upstream: None,
        bugs: &[Bug("BC-100", "linkerd2#15201")],
        fails_first: "both imports appear",
        run: |ctx| Box::pin(two_namespaces(ctx)),
    },
];

/// Labels and annotations that objects have and exports do not name.
const UNNAMED: [&str; 2] = ["dummy-svc", "dummy-svcexport"];

async fn exported_metadata(ctx: &Context) -> Outcome {
    ctx.create_namespace(ctx.everywhere()).await?;
    let service = objects::service(upstream_ports());
    let export = objects::export_with("dummy-label", "dummy-annotation");

    ctx.export_as(0, service, export).await?;

    let step = "the import has what the export names";
    let accept = with_metadata("dummy-label", "dummy-annotation", &UNNAMED);
    ctx.imports_until(step, ctx.everywhere(), "these only", accept)
        .await?;

    let other = json!({ "spec": {
        "exportedLabels": { "dummy-label": null, "other-label": "true" },
        "exportedAnnotations": { "dummy-annotation": null, "other-annotation": "true" },
    } });
    ctx.patch_export(0, &other).await?;

    let step = "the import follows a change of the export";
    let old = ["dummy-label", "dummy-annotation", UNNAMED[0], UNNAMED[1]];
    let accept = with_metadata("other-label", "other-annotation", &old);
    ctx.imports_until(step, ctx.everywhere(), "the new ones only", accept)
        .await
        .map(|_| ())
}

/// Accepts imports with that label and that annotation, and without labels and annotations of the other keys.
pub(crate) fn with_metadata(
    label: &str,
    annotation: &str,
    without: &[&str],
) -> impl Fn(&ServiceImport) -> Result<(), String> {
    let wanted = [label.to_owned(), annotation.to_owned()];
    let without: Vec<_> = without.iter().map(|key| (*key).to_owned()).collect();
    move |import| {
        let [label, annotation] = &wanted;
        let is_true = |pairs: &BTreeMap<String, String>, key: &String| {
            pairs.get(key).is_some_and(|value| value == "true")
        };
        let (labels, annotations) = (import.labels(), import.annotations());
        let stray = |key: &&String| labels.contains_key(*key) || annotations.contains_key(*key);
        if is_true(labels, label)
            && is_true(annotations, annotation)
            && !without.iter().any(|key| stray(&key))
        {
            return Ok(());
        }
        Err(format!(
            "a ServiceImport with labels {labels:?} and annotations {annotations:?}"
        ))
    }
}

async fn two_namespaces(ctx: &Context) -> Outcome {
    let beside = ctx.beside();
    ctx.create_namespace(ctx.everywhere()).await?;
    beside.create_namespace(ctx.everywhere()).await?;

    ctx.export(0, objects::headless(upstream_ports())).await?;
    let other = vec![port("tcp", "TCP", 43)];
    beside.export(1, objects::headless(other)).await?;

    let step = "both imports appear";
    let ports = vec!["tcp 42/TCP".to_owned(), "udp 42/UDP".to_owned()];
    ctx.imports_until(step, ctx.everywhere(), "its ports", with_ports(ports))
        .await?;
    let ports = vec!["tcp 43/TCP".to_owned()];
    let imports = beside
        .imports_until(step, ctx.everywhere(), "its ports", with_ports(ports))
        .await?;
    let reason = Some(REASON_NO_CONFLICTS);
    let calm = "the other export is not in conflict";
    beside
        .condition_until(calm, 1, (CONFLICT, "False"), reason)
        .await?;
    ctx.unexport(0).await?;

    ctx.imports_gone("the import of the ended export goes")
        .await?;
    let step = "the other import stays";
    beside.imports_stay(step, &imports).await?;
    for (cluster, before) in imports.iter().enumerate() {
        let accept = with_ports(port_texts(before));
        beside
            .import_until(step, cluster, "its ports", accept)
            .await?;
    }
    Ok(())
}
