//! What clusters have under one name, read from their API servers. Reads only.
//!
//! A cluster that does not answer is part of the result: without it nobody knows who wins.

use std::{collections::BTreeMap, path::Path, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::{Api, Client};
use tombolo_api::v1beta1::{ServiceExport, ServiceImport};
use tombolo_core::{
    export::evaluate,
    identity::{self, Recorded, Stated},
    names::{ClusterName, NamespacedName},
};

use super::{
    Error,
    advice::Place,
    report::{Gathered, Member, Told, Unread},
};
use crate::cluster::{
    client::{self, get_if_served},
    facts,
    identity::read,
};

/// How long a cluster may take to answer all questions.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Where to look.
pub(super) struct Clusters<'a> {
    /// The kubeconfig file.
    pub(super) kubeconfig: Option<&'a Path>,
    /// One context for each cluster.
    pub(super) contexts: &'a [String],
    /// What the user calls them.
    pub(super) names: &'a [(String, ClusterName)],
    /// Whether namespaces without annotation are global.
    pub(super) default_global: bool,
}

/// One cluster's answer.
struct Answer {
    member: Member,
    /// The exporting clusters that its ServiceImport names.
    exporting: Vec<String>,
    notes: Vec<String>,
}

/// Reads all clusters at the same time.
pub(super) async fn gather(
    name: &NamespacedName,
    clusters: &Clusters<'_>,
) -> Result<Gathered, anyhow::Error> {
    let known: BTreeMap<_, _> = clusters.names.iter().map(|(a, b)| (a, b)).collect();
    for (context, _) in clusters.names {
        if !clusters.contexts.contains(context) {
            let context = context.clone();
            return Err(Error::NoSuchContext { context }.into());
        }
    }
    let mut clients = Vec::new();
    for context in clusters.contexts {
        let made = client::client(clusters.kubeconfig, Some(context)).await?;
        clients.push((context, made));
    }
    let answers = clients.into_iter().map(async |(context, client)| {
        let stated = known.get(context).copied();
        let asked = ask(&client, context, stated, name, clusters.default_global);
        let answer = tokio::time::timeout(READ_TIMEOUT, asked).await;
        let answer = answer.unwrap_or_else(|_| Err(Failure::late()));
        (context, stated, answer)
    });
    let mut gathered = Gathered::default();
    let mut exporting = BTreeMap::new();
    for (context, stated, answer) in join_all(answers).await {
        match answer {
            Ok(answer) => {
                add(&mut gathered, answer.member, context)?;
                gathered.notes.extend(answer.notes);
                for cluster in answer.exporting {
                    exporting.entry(cluster).or_insert_with(|| context.clone());
                }
            }
            Err(Failure::Input(error)) => return Err(error.into()),
            Err(Failure::Unread(error)) => gathered.unread.push(Unread {
                cluster: stated.map_or_else(|| context.clone(), ToString::to_string),
                error: format!("context {context}: {error}"),
            }),
        }
    }
    add_unnamed(&mut gathered, exporting);
    Ok(gathered)
}

fn add(gathered: &mut Gathered, member: Member, context: &str) -> Result<(), Error> {
    let same = |it: &&Member| it.cluster == member.cluster;
    if let Some(other) = gathered.members.iter().find(same) {
        let Place::Context(first) = &other.place else {
            return Ok(());
        };
        return Err(Error::SameName {
            contexts: format!("{first} and {context}"),
            cluster: member.cluster,
        });
    }
    gathered.members.push(member);
    Ok(())
}

/// Clusters that export according to a ServiceImport and that nobody gave a context for.
fn add_unnamed(gathered: &mut Gathered, exporting: BTreeMap<String, String>) {
    for (cluster, context) in exporting {
        let read = gathered
            .members
            .iter()
            .any(|it| it.cluster.as_str() == cluster);
        let missing = gathered.unread.iter().any(|it| it.cluster == cluster);
        if !read && !missing {
            let error = format!(
                "the ServiceImport that context {context} has says that it exports too; add its context to --contexts"
            );
            gathered.unread.push(Unread { cluster, error });
        }
    }
}

/// Why a cluster gave no answer.
enum Failure {
    /// The user has to say something else.
    Input(Error),
    /// It could not be read.
    Unread(String),
}

impl Failure {
    fn late() -> Self {
        Self::Unread(format!("no answer within {} s", READ_TIMEOUT.as_secs()))
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Unread(crate::cli::message(&error.into()))
    }
}

async fn ask(
    client: &Client,
    context: &str,
    stated: Option<&ClusterName>,
    name: &NamespacedName,
    default_global: bool,
) -> Result<Answer, Failure> {
    let (namespace, object) = (name.namespace.as_str(), name.name.as_str());
    let cluster = cluster_name(&read(client).await?, stated, context).map_err(Failure::Input)?;
    let gate = get_if_served(&Api::<Namespace>::all(client.clone()), namespace).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = get_if_served(&services, object).await?;
    let exports: Api<ServiceExport> = Api::namespaced(client.clone(), namespace);
    let export = get_if_served(&exports, object).await?;
    let imports: Api<ServiceImport> = Api::namespaced(client.clone(), namespace);
    let import = get_if_served(&imports, object).await?;
    let mut notes = Vec::new();
    let mut absent = |error: facts::Error| {
        notes.push(format!(
            "{cluster}: {error}. Until then the object counts as absent"
        ));
    };
    let export_facts = export
        .as_ref()
        .map(facts::service_export)
        .and_then(|it| it.map_err(&mut absent).ok());
    let service = service
        .as_ref()
        .map(facts::service)
        .and_then(|it| it.map_err(&mut absent).ok());
    // Without a ServiceExport it does not matter what the namespace is.
    let global = export.is_none() || facts::namespace_is_global(gate.as_ref(), default_global);
    let status = import.and_then(|import| import.status);
    let exporting = status.and_then(|status| status.clusters);
    Ok(Answer {
        exporting: exporting
            .into_iter()
            .flatten()
            .map(|it| it.cluster)
            .collect(),
        member: Member {
            verdict: evaluate(&cluster, global, service.as_ref(), export_facts.as_ref()),
            cluster,
            place: Place::Context(context.to_owned()),
            since_known: true,
            recorded: export.map(told),
        },
        notes,
    })
}

/// What the mesh calls the cluster of a context: as its property and the user say, which must agree, else as the context.
fn cluster_name(
    recorded: &Recorded,
    stated: Option<&ClusterName>,
    context: &str,
) -> Result<ClusterName, Error> {
    let said = Stated {
        cluster: stated.cloned(),
        clusterset: None,
    };
    match identity::decide(&said, recorded) {
        Ok(identity) => Ok(identity.cluster),
        Err(identity::Error::Missing) => {
            ClusterName::try_from(context).map_err(|source| Error::Unnamed {
                context: context.to_owned(),
                source,
            })
        }
        Err(identity::Error::Mismatch { property, flag, .. }) => Err(Error::Renamed {
            context: context.to_owned(),
            property,
            stated: flag,
        }),
        Err(source @ identity::Error::Invalid { .. }) => Err(Error::Identity {
            context: context.to_owned(),
            source,
        }),
    }
}

fn told(export: ServiceExport) -> Vec<Told> {
    let conditions = export.status.and_then(|status| status.conditions);
    let conditions = conditions.into_iter().flatten();
    conditions
        .map(|condition| Told {
            kind: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(value: &str) -> Recorded {
        Recorded {
            cluster: Some(value.to_owned()),
            clusterset: None,
        }
    }

    #[test]
    fn a_cluster_is_called_as_its_property_says_else_as_the_user_says_else_as_its_context() {
        let rome = ClusterName::try_from("rome").unwrap();
        let name = |recorded: &Recorded, stated, context: &str| {
            cluster_name(recorded, stated, context).map(|name| name.to_string())
        };

        let none = Recorded::default();
        assert_eq!(name(&property("paris"), None, "kind-a").unwrap(), "paris");
        assert_eq!(name(&none, Some(&rome), "kind-a").unwrap(), "rome");
        assert_eq!(name(&none, None, "kind-a").unwrap(), "kind-a");
    }

    #[test]
    fn a_context_that_is_no_cluster_name_asks_for_names() {
        let error = cluster_name(&Recorded::default(), None, "admin@rome").unwrap_err();

        let error = error.to_string();
        assert!(error.contains("--names admin@rome="), "{error}");
    }

    #[test]
    fn what_the_user_calls_a_cluster_must_agree_with_its_property() {
        let rome = ClusterName::try_from("rome").unwrap();

        let error = cluster_name(&property("paris"), Some(&rome), "a").unwrap_err();

        let error = error.to_string();
        assert!(
            error.contains("paris") && error.contains("--names"),
            "{error}"
        );
    }
}
