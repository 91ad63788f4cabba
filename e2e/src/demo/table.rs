//! One row per cluster: what a user would ask about an exported service. Pure.

use std::collections::BTreeSet;

use comfy_table::Table;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use tombolo_api::{
    conditions::{CONFLICT, VALID},
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};

use crate::view::Objects;

/// What a cluster shows of one service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Name of the cluster.
    pub(super) cluster: String,
    /// Its ServiceExport: `valid`, or what is wrong.
    pub(super) export: String,
    /// Reason of the condition Conflict, when it is true.
    pub(super) conflict: Option<String>,
    /// Its message.
    pub(super) conflict_message: String,
    /// Type and ports of its ServiceImport.
    pub(super) import: String,
    /// IPs of the import.
    pub(super) ips: String,
    /// Name of the derived Service, when it exists.
    pub(super) derived: String,
    /// Ready IPv4 endpoints behind the derived Service: `address (cluster)`.
    pub(super) endpoints: BTreeSet<String>,
}

impl Row {
    /// The row of a cluster's objects.
    pub(super) fn of(cluster: &str, service: &str, objects: &Objects) -> Self {
        let mut row = Self {
            cluster: cluster.to_owned(),
            ..Self::default()
        };
        if let Some(export) = objects.exports.iter().find(|it| it.name_any() == service) {
            row.add_export(export);
        }
        if let Some(import) = objects.imports.iter().find(|it| it.name_any() == service) {
            row.add_import(import, objects);
        }
        row
    }

    fn add_export(&mut self, export: &ServiceExport) {
        let status = export.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let of = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind);
        let is_true =
            |condition: Option<&Condition>| condition.is_some_and(|it| it.status == "True");
        self.export = match of(VALID) {
            None => "pending".to_owned(),
            Some(condition) if condition.status == "True" => "valid".to_owned(),
            Some(condition) => condition.reason.clone(),
        };
        if let Some(conflict) = of(CONFLICT).filter(|it| is_true(Some(it))) {
            self.conflict = Some(conflict.reason.clone());
            self.conflict_message.clone_from(&conflict.message);
        }
    }

    fn add_import(&mut self, import: &ServiceImport, objects: &Objects) {
        let ports = import.spec.ports.iter().map(|port| {
            let name = port.name.as_deref().unwrap_or("(unnamed)");
            format!("{name} {}", port.port)
        });
        let ports: Vec<_> = ports.collect();
        self.import = format!("{} {}", import.spec.type_, ports.join(", "));
        self.ips = import.spec.ips.clone().unwrap_or_default().join("\n");
        let derived = import
            .annotations()
            .get(keys::DERIVED_SERVICE)
            .cloned()
            .unwrap_or_default();
        if objects
            .services
            .iter()
            .any(|service| service.name_any() == derived)
        {
            self.derived = derived;
        }
        for slice in objects
            .slices
            .iter()
            .filter(|slice| slice.address_type == "IPv4")
        {
            let labels = slice.labels();
            if labels.get(keys::KUBERNETES_SERVICE_NAME) != Some(&self.derived) {
                continue;
            }
            let source = labels.get(keys::SOURCE_CLUSTER).map_or("?", String::as_str);
            let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
                endpoint.conditions.as_ref().and_then(|it| it.ready) != Some(false)
            });
            let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
            self.endpoints
                .extend(addresses.map(|address| format!("{address} ({source})")));
        }
    }

    /// How many ready endpoints come from that cluster.
    pub(super) fn endpoints_of(&self, cluster: &str) -> usize {
        let suffix = format!("({cluster})");
        self.endpoints
            .iter()
            .filter(|endpoint| endpoint.ends_with(&suffix))
            .count()
    }

    fn export_text(&self) -> String {
        match &self.conflict {
            None => dash(&self.export),
            Some(reason) => format!("{}, {reason}", self.export),
        }
    }
}

fn dash(text: &str) -> String {
    if text.is_empty() {
        "–".to_owned()
    } else {
        text.to_owned()
    }
}

/// The rows as a table, 80 columns wide at most: it is drawn over, which a line that wraps would spoil.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.set_header([
        "cluster",
        "export",
        "import",
        "derived Service",
        "ready endpoints",
    ]);
    for row in rows {
        let endpoints: Vec<_> = row.endpoints.iter().map(String::as_str).collect();
        let derived = format!("{}\n{}", row.derived, row.ips);
        table.add_row([
            row.cluster.clone(),
            row.export_text().replace(", ", "\n"),
            dash(&row.import.replacen(' ', "\n", 1)),
            dash(derived.trim()),
            dash(&endpoints.join("\n")),
        ]);
    }
    table.to_string()
}

/// A row as one line, for output that is not a terminal.
pub(super) fn line(row: &Row) -> String {
    let endpoints: Vec<_> = row.endpoints.iter().map(String::as_str).collect();
    format!(
        "{}: export {}; import {}; IPs {}; derived Service {}; endpoints {}",
        row.cluster,
        row.export_text(),
        dash(&row.import),
        dash(&row.ips.replace('\n', " ")),
        dash(&row.derived),
        dash(&endpoints.join(" "))
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;

    use super::*;

    fn objects() -> Objects {
        let import = json!({
            "metadata": { "name": "web", "annotations": { keys::DERIVED_SERVICE: "derived-x" } },
            "spec": { "type": "ClusterSetIP", "ports": [{ "name": "http", "port": 80 }], "ips": ["10.0.0.9"] },
        });
        let slice = json!({
            "metadata": { "name": "s", "labels": {
                keys::KUBERNETES_SERVICE_NAME: "derived-x", keys::SOURCE_CLUSTER: "b" } },
            "addressType": "IPv4",
            "endpoints": [
                { "addresses": ["10.1.0.1"] },
                { "addresses": ["10.1.0.2"], "conditions": { "ready": false } },
            ],
        });
        let mut service = k8s_openapi::api::core::v1::Service::default();
        service.metadata.name = Some("derived-x".to_owned());
        Objects {
            imports: vec![serde_json::from_value(import).unwrap()],
            services: vec![service],
            slices: vec![serde_json::from_value::<EndpointSlice>(slice).unwrap()],
            ..Objects::default()
        }
    }

    #[test]
    fn a_cluster_that_only_imports_shows_the_ready_endpoints_and_where_they_are() {
        let row = Row::of("a", "web", &objects());

        assert_eq!(
            line(&row),
            "a: export –; import ClusterSetIP http 80; IPs 10.0.0.9; derived Service derived-x; \
             endpoints 10.1.0.1 (b)"
        );
        assert_eq!((row.endpoints_of("b"), row.endpoints_of("a")), (1, 0));
    }

    #[test]
    fn a_conflict_is_shown_beside_the_validity() {
        let mut objects = objects();
        let export = json!({
            "metadata": { "name": "web" },
            "spec": {},
            "status": { "conditions": [
                { "type": "Valid", "status": "True", "reason": "Valid", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "Conflict", "status": "True", "reason": "PortConflict", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ] },
        });
        objects.exports = vec![serde_json::from_value(export).unwrap()];

        let row = Row::of("a", "web", &objects);

        assert_eq!(row.export_text(), "valid, PortConflict");
        let table = table(&[row]);
        assert!(table.contains("| valid        | ClusterSetIP"), "{table}");
        assert!(
            table.lines().all(|line| line.chars().count() <= 80),
            "{table}"
        );
    }
}
