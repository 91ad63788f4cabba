//! What a cluster should hold and what it holds, in one shape, so that a difference can be named. Talks to nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::ResourceExt as _;
use tombolo_api::{
    conditions::{CONFLICT, VALID},
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};

/// The multi-cluster state of one namespace of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Imports by name.
    pub imports: BTreeMap<String, Import>,
    /// Exports by name, with the conditions that matter.
    pub exports: BTreeMap<String, String>,
    /// Names of what belongs to no import: derived Services and imported slices that should have gone.
    pub leftovers: BTreeSet<String>,
    /// Keys of the exports in the cluster's own mesh etcd, without prefix and namespace.
    pub records: BTreeSet<String>,
}

/// An import and what is behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// Its type.
    pub kind: String,
    /// Its ports, sorted.
    pub ports: Vec<String>,
    /// The exporting clusters, sorted.
    pub clusters: Vec<String>,
    /// Where traffic can go: ready endpoints of the derived Service, per port.
    pub targets: BTreeSet<String>,
    /// Whether it has IPs and they are those of the derived Service.
    pub ips_of_derived: bool,
}

/// One place that traffic for a port can go to.
pub fn target(port: &str, address: &str, number: i32) -> String {
    format!("{port} → {address} {number}")
}

/// Conditions as [`View::exports`] shows them.
pub fn conditions(valid: &str, conflict: &str) -> String {
    format!("{VALID}={valid} {CONFLICT}={conflict}")
}

/// The objects of a namespace, as the API server lists them.
#[derive(Debug, Default)]
pub struct Objects {
    /// ServiceImports.
    pub imports: Vec<ServiceImport>,
    /// ServiceExports.
    pub exports: Vec<ServiceExport>,
    /// Services.
    pub services: Vec<Service>,
    /// EndpointSlices.
    pub slices: Vec<EndpointSlice>,
}

impl Objects {
    /// These objects as a view, with the keys that were found in the mesh's etcd.
    pub fn view(&self, records: BTreeSet<String>) -> View {
        let imports = self
            .imports
            .iter()
            .map(|import| (import.name_any(), self.import(import)));
        let exports = self
            .exports
            .iter()
            .map(|export| (export.name_any(), of_export(export)));
        View {
            imports: imports.collect(),
            exports: exports.collect(),
            leftovers: self.leftovers(),
            records,
        }
    }

    fn import(&self, import: &ServiceImport) -> Import {
        let status = import.status.clone().unwrap_or_default();
        let clusters = status.clusters.unwrap_or_default();
        let mut clusters: Vec<_> = clusters.into_iter().map(|entry| entry.cluster).collect();
        clusters.sort();
        let ports = import.spec.ports.iter().map(|port| {
            let name = port.name.as_deref().unwrap_or_default();
            let protocol = port.protocol.as_deref().unwrap_or_default();
            format!("{name} {}/{protocol}", port.port)
        });
        let mut ports: Vec<_> = ports.collect();
        ports.sort();
        let derived = import
            .annotations()
            .get(keys::DERIVED_SERVICE)
            .cloned()
            .unwrap_or_default();
        Import {
            kind: import.spec.type_.clone(),
            ports,
            clusters,
            targets: self.targets(&derived),
            ips_of_derived: self.ips_of(&derived, import),
        }
    }

    fn ips_of(&self, derived: &str, import: &ServiceImport) -> bool {
        let service = self
            .services
            .iter()
            .find(|service| service.name_any() == derived);
        let spec = service
            .and_then(|service| service.spec.clone())
            .unwrap_or_default();
        let mut ips = spec.cluster_ips.unwrap_or_default();
        let mut wanted = import.spec.ips.clone().unwrap_or_default();
        ips.sort();
        wanted.sort();
        !wanted.is_empty() && ips == wanted
    }

    fn targets(&self, derived: &str) -> BTreeSet<String> {
        let mut targets = BTreeSet::new();
        for slice in &self.slices {
            if slice
                .labels()
                .get(keys::KUBERNETES_SERVICE_NAME)
                .map(String::as_str)
                != Some(derived)
            {
                continue;
            }
            let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
                let conditions = endpoint.conditions.as_ref();
                conditions.and_then(|conditions| conditions.ready) != Some(false)
            });
            for address in ready.flat_map(|endpoint| &endpoint.addresses) {
                for port in slice.ports.iter().flatten() {
                    let name = port.name.as_deref().unwrap_or_default();
                    targets.insert(target(name, address, port.port.unwrap_or_default()));
                }
            }
        }
        targets
    }

    fn leftovers(&self) -> BTreeSet<String> {
        let imported = |name: Option<&String>| {
            name.is_some_and(|name| self.imports.iter().any(|import| import.name_any() == *name))
        };
        let mut leftovers = BTreeSet::new();
        for slice in &self.slices {
            let name = slice.labels().get(keys::SERVICE_NAME);
            if name.is_some() && !imported(name) {
                leftovers.insert(format!("EndpointSlice {}", slice.name_any()));
            }
        }
        for service in &self.services {
            let name = service.labels().get(keys::SERVICE_NAME);
            if name.is_some() && !imported(name) {
                leftovers.insert(format!("Service {}", service.name_any()));
            }
        }
        leftovers
    }
}

fn of_export(export: &ServiceExport) -> String {
    let status = export.status.clone().unwrap_or_default();
    let all = status.conditions.unwrap_or_default();
    let of = |kind: &str| {
        let found = all.iter().find(|condition| condition.type_ == kind);
        found.map_or_else(|| "(none)".to_owned(), |condition| condition.status.clone())
    };
    conditions(&of(VALID), &of(CONFLICT))
}

impl View {
    /// What is different here from `wanted`, in words; none when nothing is.
    pub fn difference(&self, wanted: &Self) -> Option<String> {
        let mut text = String::new();
        differ(&mut text, "imports", &wanted.imports, &self.imports);
        differ(&mut text, "exports", &wanted.exports, &self.exports);
        if self.leftovers != wanted.leftovers {
            let _ = write!(text, "leftovers: {:?}; ", self.leftovers);
        }
        if self.records != wanted.records {
            let _ = write!(
                text,
                "records: {:?}, wanted {:?}; ",
                self.records, wanted.records
            );
        }
        (!text.is_empty()).then_some(text)
    }
}

fn differ<T: PartialEq + std::fmt::Debug>(
    text: &mut String,
    what: &str,
    wanted: &BTreeMap<String, T>,
    found: &BTreeMap<String, T>,
) {
    let names: BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
    for name in names {
        let (wanted, found) = (wanted.get(name), found.get(name));
        if wanted != found {
            let _ = write!(text, "{what} {name}: {found:?}, wanted {wanted:?}; ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_views_have_no_difference() {
        assert_eq!(View::default().difference(&View::default()), None);
    }

    #[test]
    fn a_missing_import_is_named() {
        let mut wanted = View::default();
        wanted.imports.insert("web".to_owned(), Import::default());

        let difference = View::default().difference(&wanted).unwrap();

        assert!(
            difference.starts_with("imports web: None, wanted Some"),
            "{difference}"
        );
    }

    #[test]
    fn a_derived_service_without_import_is_a_leftover() {
        let mut service = Service::default();
        service.metadata.name = Some("derived-x".to_owned());
        service
            .labels_mut()
            .insert(keys::SERVICE_NAME.to_owned(), "web".to_owned());
        let objects = Objects {
            services: vec![service],
            ..Objects::default()
        };

        let view = objects.view(BTreeSet::new());

        assert_eq!(
            view.leftovers.into_iter().collect::<Vec<_>>(),
            ["Service derived-x"]
        );
    }
}
