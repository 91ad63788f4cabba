//! The order of events does not matter: objects made in every order lead to one state, and deleted in every order to none.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use futures::{TryStreamExt, stream};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tombolo_api::{
    keys,
    v1beta1::{ServiceExport, ServiceImport},
};
use tombolo_core::names::NamespacedName;
use tombolo_testbed::eventually;

use crate::{
    fake_peers::{export_from, service_from},
    world::{BUDGET, Operator, World, shared},
};

/// Names that are made and deleted at once.
const CONCURRENCY: usize = 8;

/// What the state of one name comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Service,
    ServiceExport,
    LocalSlice,
    PeerExport,
    PeerBackends,
    HandMadeImport,
}

impl Object {
    async fn make(self, name: &NamespacedName, world: &World, operator: &Operator) -> Result<()> {
        let service = name.name.as_str();
        match self {
            Self::Service => {
                let yaml = format!(
                    "{{metadata: {{name: {service}}}, spec: {{ports: [{{name: http, port: 80}}]}}}}"
                );
                world.create::<Service>(&yaml).await?;
            }
            Self::ServiceExport => {
                let yaml = format!(
                    "{{metadata: {{name: {service}}}, spec: {{exportedLabels: {{team: pay}}}}}}"
                );
                world.create::<ServiceExport>(&yaml).await?;
            }
            Self::LocalSlice => {
                let yaml = format!(
                    "{{metadata: {{name: {service}-1, labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, \
                     ports: [{{name: http, port: 8080}}], endpoints: [{{addresses: [10.9.0.1]}}]}}"
                );
                world.create::<EndpointSlice>(&yaml).await?;
            }
            Self::PeerExport => operator.peers.export(export_from("east", name)),
            Self::PeerBackends => {
                operator
                    .peers
                    .serve(service_from("east", &name.derived(), &["10.1.0.1"]));
            }
            Self::HandMadeImport => {
                let yaml = format!(
                    "{{metadata: {{name: {service}, labels: {{foreign: '1'}}}}, spec: {{type: Headless, ports: []}}}}"
                );
                let import: ServiceImport = serde_saphyr::from_str(&yaml)?;
                let api = world.api();
                eventually(BUDGET, "there is an import", async || {
                    match api.create(&PostParams::default(), &import).await {
                        // The operator was faster.
                        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                        // The definitions may be a moment old.
                        Err(error) => Err(error.to_string()),
                        Ok(_) => Ok(()),
                    }
                })
                .await?;
            }
        }
        Ok(())
    }

    async fn delete(self, name: &NamespacedName, world: &World, operator: &Operator) -> Result<()> {
        let service = name.name.as_str();
        match self {
            Self::Service => world.delete::<Service>(service).await,
            Self::ServiceExport => world.delete::<ServiceExport>(service).await,
            Self::LocalSlice => world.delete::<EndpointSlice>(&format!("{service}-1")).await,
            Self::PeerExport => {
                operator.peers.withdraw("east", name);
                Ok(())
            }
            Self::PeerBackends => {
                operator.peers.unserve("east", &name.derived());
                Ok(())
            }
            Self::HandMadeImport => world.delete::<ServiceImport>(service).await,
        }
    }
}

/// All orders of `objects`.
fn orders(objects: &[Object]) -> Vec<Vec<Object>> {
    if objects.is_empty() {
        return vec![Vec::new()];
    }
    let first = |object: &Object| {
        let others: Vec<_> = objects
            .iter()
            .filter(|other| *other != object)
            .copied()
            .collect();
        let with_first = orders(&others).into_iter().map(|mut order| {
            order.insert(0, *object);
            order
        });
        with_first.collect::<Vec<_>>()
    };
    objects.iter().flat_map(first).collect()
}

/// What the operator made of every name of a namespace, without what differs from name to name.
struct States(BTreeMap<String, Vec<String>>);

impl States {
    async fn of(world: &World) -> Result<Self, kube::Error> {
        let mut states = Self(BTreeMap::new());
        let list = ListParams::default();
        for import in &world.api::<ServiceImport>().list(&list).await?.items {
            states.add(import, &import.name_any(), json!({
                "labels": import.labels(), "annotations": import.annotations(), "status": import.status,
                "spec": import.spec,
            }));
        }
        for export in &world.api::<ServiceExport>().list(&list).await?.items {
            states.add(export, &export.name_any(), json!(export.status));
        }
        for service in &world.api::<Service>().list(&list).await?.items {
            if let Some(of) = service.labels().get(keys::SERVICE_NAME) {
                let spec = service.spec.clone().unwrap_or_default();
                states.add(
                    service,
                    of,
                    json!([
                        service.labels(),
                        service.annotations(),
                        spec.ports,
                        spec.type_,
                        spec.session_affinity,
                        spec.selector,
                    ]),
                );
            }
        }
        let slices: Api<EndpointSlice> = world.api();
        for slice in &slices.list(&list).await?.items {
            if let Some(of) = slice.labels().get(keys::SERVICE_NAME) {
                states.add(
                    slice,
                    of,
                    json!([slice.labels(), slice.ports, slice.endpoints]),
                );
            }
        }
        Ok(states)
    }

    fn add<K: Resource<DynamicType = ()>>(&mut self, object: &K, of: &str, mut facts: Value) {
        without_what_differs(&mut facts);
        let namespace = object.namespace().unwrap_or_default();
        let text = format!("{} {facts}", K::kind(&()));
        let derived = NamespacedName::parse(&namespace, of).map(|name| name.derived());
        let text = derived.map_or(text.clone(), |derived| {
            text.replace(derived.name.as_str(), "DERIVED")
        });
        let row = self.0.entry(of.to_owned()).or_default();
        row.push(text.replace(of, "NAME"));
        row.sort();
    }
}

fn without_what_differs(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|key, _| key != "lastTransitionTime" && key != "ips");
            members.values_mut().for_each(without_what_differs);
        }
        Value::Array(items) => items.iter_mut().for_each(without_what_differs),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Makes `objects` in every order, each with a name of its own; waits for one and the same state, which `says` all of this.
/// Then deletes them, in every order too, and waits until nothing is left.
async fn every_order(objects: &[Object], prefix: &str, says: &[&str]) -> Result<()> {
    let (world, operator) = shared().await?;
    let made = orders(objects);
    let names: Vec<_> = (0..made.len())
        .map(|index| world.name(&format!("{prefix}{index:03}")))
        .collect();
    stream::iter(names.iter().zip(&made).map(Ok::<_, anyhow::Error>))
        .try_for_each_concurrent(CONCURRENCY, async |(name, order)| {
            for object in order {
                object.make(name, &world, operator).await?;
            }
            Ok(())
        })
        .await?;
    eventually(BUDGET, "all names are in one state", async || {
        let states = States::of(&world)
            .await
            .map_err(|error| error.to_string())?
            .0;
        let different: BTreeSet<_> = states.values().collect();
        let one = different
            .first()
            .filter(|_| different.len() == 1 && states.len() == names.len());
        let text = one
            .map(|state| state.join("\n"))
            .ok_or_else(|| format!("{different:#?}"))?;
        let missing = says.iter().find(|part| !text.contains(**part));
        missing.map_or(Ok(()), |part| Err(format!("no {part:?} in {text}")))
    })
    .await?;
    // The orders of deletion go the other way round, so that each meets another order of creation.
    stream::iter(
        names
            .iter()
            .zip(made.iter().rev())
            .map(Ok::<_, anyhow::Error>),
    )
    .try_for_each_concurrent(CONCURRENCY, async |(name, order)| {
        for object in order {
            object.delete(name, &world, operator).await?;
        }
        Ok(())
    })
    .await?;
    eventually(BUDGET, "nothing is left", async || {
        let states = States::of(&world)
            .await
            .map_err(|error| error.to_string())?
            .0;
        states
            .is_empty()
            .then_some(())
            .ok_or_else(|| format!("{states:#?}"))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_in_which_objects_come_and_go_does_not_matter() -> Result<()> {
    use Object::{LocalSlice, PeerBackends, PeerExport, Service, ServiceExport};
    let says = [
        r#""clusters":[{"cluster":"a"},{"cluster":"east"}]"#,
        r#""endpointSliceObjects":"Present""#,
        r#""reason":"NoConflicts""#,
        r#""addresses":["10.1.0.1"]"#,
        r#""addresses":["10.9.0.1"]"#,
    ];
    let objects = [Service, ServiceExport, LocalSlice, PeerExport, PeerBackends];
    every_order(&objects, "web", &says).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_made_import_is_taken_over_whenever_it_comes() -> Result<()> {
    use Object::{HandMadeImport, PeerExport, Service, ServiceExport};
    let says = [
        r#""clusters":[{"cluster":"a"},{"cluster":"east"}]"#,
        r#""type":"ClusterSetIP""#,
        r#""labels":{"team":"pay"}"#,
    ];
    let objects = [HandMadeImport, Service, ServiceExport, PeerExport];
    every_order(&objects, "made", &says).await
}
