//! What has to be done, from what was found. Pure.
//!
//! Nothing is switched on in CoreDNS before the API is served and may be read: without them CoreDNS never gets ready and fails
//! names of the cluster's own zone as well.

use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use kube::ResourceExt as _;

use super::{
    args::ConfigureArgs,
    corefile::{self, Edited},
    observe::{NODE_LOCAL, Observed, ROLE, SERVED},
    version::{FIRST, Version},
};

mod undo;

pub use undo::undo;

/// Annotation of a ConfigMap that was configured: the Corefile from before, for `--undo`.
pub const BEFORE: &str = "tombolo/corefile-before";

/// Annotation of the ConfigMap of a CoreDNS that has yet to be restarted, since its Corefile was written and has no plugin
/// `reload`: a run may end between the two.
pub const PENDING: &str = "tombolo/restart-pending";

/// Key of the Corefile in its ConfigMap.
const COREFILE_KEY: &str = "Corefile";

/// Most bytes of an object's annotations. Kubernetes' `TotalAnnotationSizeLimitB`.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// As it has to be.
    Ok,
    /// Worth knowing.
    Note,
    /// Has to be changed, and can be.
    Missing,
    /// Has to be changed by somebody else first.
    Blocked,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub level: Level,
    /// What it is about.
    pub subject: &'static str,
    /// What is to be said, in one line.
    pub text: String,
}

/// A Corefile to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The version of it that was read.
    pub resource_version: String,
    /// The Corefile that it has.
    pub from: String,
    /// The Corefile that it gets.
    pub to: String,
    /// What is noted for `--undo`; nothing when this is one.
    pub note: Option<String>,
    /// Whether its server has to be restarted to see it.
    pub restart: bool,
}

/// What is to be done with CoreDNS' right to read imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Nothing.
    Keep,
    /// Role and binding are to be there.
    Grant,
    /// Role and binding are to go, last of all.
    Revoke,
}

/// Everything that is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What was found.
    pub findings: Vec<Finding>,
    /// The right to read imports.
    pub rights: Rights,
    /// The Corefile of CoreDNS.
    pub corefile: Option<Change>,
    /// Whether CoreDNS has to be restarted to see it.
    pub restart: bool,
    /// The Corefile of the cache on nodes.
    pub node_local: Option<Change>,
}

impl Plan {
    /// The texts of what was found at a level.
    pub fn texts(&self, level: Level) -> Vec<&str> {
        let found = self.findings.iter().filter(|it| it.level == level);
        found.map(|it| it.text.as_str()).collect()
    }

    fn add(&mut self, level: Level, subject: &'static str, text: impl Into<String>) {
        self.findings.push(Finding {
            level,
            subject,
            text: text.into(),
        });
    }

    /// Plans a restart of CoreDNS, if it sees its Corefile only then: the one to be written, or one that an earlier run wrote.
    fn restart(&mut self, observed: &Observed, args: &ConfigureArgs) {
        let pending = observed.config.annotations().contains_key(PENDING);
        if let Some(change) = &mut self.corefile {
            let changed = change.to != change.from;
            change.restart = pending || changed && corefile::reloads(&change.to) == Ok(false);
            self.restart = change.restart;
        } else if pending {
            self.restart = true;
            let name = format!(
                "Deployment {}/{}",
                args.coredns_namespace, args.coredns_deployment_name
            );
            self.add(Level::Missing, "CoreDNS", format!("{name}: has yet to be restarted: its Corefile was written and has no plugin reload"));
        }
    }

    fn new() -> Self {
        Self {
            findings: Vec::new(),
            rights: Rights::Keep,
            corefile: None,
            restart: false,
            node_local: None,
        }
    }
}

/// What has to be done to have the ClusterSet's zone served.
pub fn configure(observed: &Observed, args: &ConfigureArgs) -> Plan {
    let mut plan = Plan::new();
    api(&mut plan, observed);
    core_dns(&mut plan, observed, args);
    rights(&mut plan, observed, args);
    let object = format!(
        "ConfigMap {}/{}",
        args.coredns_namespace, args.coredns_configmap_name
    );
    match corefile_of(&observed.config) {
        None => plan.add(
            Level::Blocked,
            "Corefile",
            format!(
                "{object}: has no key Corefile; name the right one with --coredns-configmap-name"
            ),
        ),
        Some(text) => match corefile::configure(text, &args.zones()) {
            Err(refusal) => plan.add(Level::Blocked, "Corefile", format!("{object}: {refusal}")),
            Ok(edited) => {
                for note in &edited.notes {
                    plan.add(
                        Level::Note,
                        "Corefile",
                        format!("{object}: line {}: {}", note.line, note.text),
                    );
                }
                plan.corefile = edit(&mut plan, "Corefile", &observed.config, text, edited);
                plan.restart(observed, args);
                managed(&mut plan, &object, &observed.config);
            }
        },
    }
    node_local(&mut plan, observed, args);
    plan
}

fn api(plan: &mut Plan, observed: &Observed) {
    let group = tombolo_api::GROUP;
    if observed.served {
        plan.add(Level::Ok, "API", format!("{group}/{SERVED} is served"));
    } else {
        plan.add(Level::Blocked, "API", format!("serviceimports in {group}/{SERVED}: not served, and CoreDNS would answer SERVFAIL in every zone; first `tombolo crds | kubectl apply -f -`"));
    }
}

fn core_dns(plan: &mut Plan, observed: &Observed, args: &ConfigureArgs) {
    let name = format!(
        "Deployment {}/{}",
        args.coredns_namespace, args.coredns_deployment_name
    );
    let pods = observed.deployment.spec.template.spec.clone();
    let pods = pods.unwrap_or_default();
    let image = image(&pods);
    match args.coredns_version.or_else(|| Version::of_image(&image)) {
        Some(version) if version >= FIRST => plan.add(Level::Ok, "CoreDNS", format!("{name}: version {version}")),
        Some(version) => plan.add(Level::Blocked, "CoreDNS", format!("{name}: version {version}, which knows no option multicluster; upgrade CoreDNS to {FIRST} or later")),
        None => plan.add(Level::Blocked, "CoreDNS", format!("{name}: image {image} does not tell its version, and before {FIRST} CoreDNS would not start; say it with --coredns-version")),
    }
    if !mounts(&pods, &args.coredns_configmap_name) {
        plan.add(Level::Blocked, "CoreDNS", format!("{name}: does not mount ConfigMap {}; name the one that it mounts with --coredns-configmap-name", args.coredns_configmap_name));
    }
    let has = pods.service_account_name.as_deref().unwrap_or("default");
    if has != observed.account {
        plan.add(
            Level::Blocked,
            "CoreDNS",
            format!(
                "{name}: runs as account {has}, not {}; leave --coredns-service-account-name out",
                observed.account
            ),
        );
    }
}

/// The image of CoreDNS among those of the pod.
fn image(pods: &PodSpec) -> String {
    let images = || pods.containers.iter().filter_map(|it| it.image.as_deref());
    let named = images().find(|it| it.contains("coredns"));
    named
        .or_else(|| images().next())
        .unwrap_or("(none)")
        .to_owned()
}

fn mounts(pods: &PodSpec, name: &str) -> bool {
    pods.volumes.iter().flatten().any(|volume| {
        let projected = volume
            .projected
            .iter()
            .flat_map(|it| it.sources.iter().flatten());
        let mut projected = projected.filter_map(|it| it.config_map.as_ref());
        volume.config_map.as_ref().is_some_and(|it| it.name == name)
            || projected.any(|it| it.name == name)
    })
}

fn rights(plan: &mut Plan, observed: &Observed, args: &ConfigureArgs) {
    let account = format!("account {}/{}", args.coredns_namespace, observed.account);
    if observed.may_read {
        plan.add(
            Level::Ok,
            "rights",
            format!("{account}: may list and watch serviceimports"),
        );
    } else {
        for kind in observed.foreign() {
            plan.add(Level::Blocked, "rights", format!("{kind} {ROLE}: is there, and not made by this command; give it another name, or let {account} list and watch serviceimports in {} yourself", tombolo_api::GROUP));
        }
        plan.rights = Rights::Grant;
        plan.add(Level::Missing, "rights", format!("{account}: may not list and watch serviceimports: ClusterRole and ClusterRoleBinding {ROLE}"));
    }
}

fn corefile_of(config: &ConfigMap) -> Option<&str> {
    config.data.as_ref()?.get(COREFILE_KEY).map(String::as_str)
}

fn edit(
    plan: &mut Plan,
    subject: &'static str,
    config: &ConfigMap,
    text: &str,
    edited: Edited,
) -> Option<Change> {
    let object = object(config);
    if edited.text == text {
        plan.add(Level::Ok, subject, format!("{object}: serves the zone"));
        return None;
    }
    plan.add(
        Level::Missing,
        subject,
        format!("{object}: does not serve the zone"),
    );
    writable(plan, subject, config, text);
    Some(change(config, text, edited.text, Some(text.to_owned())))
}

/// Notes why an API server would refuse a Corefile with `note` beside it.
fn writable(plan: &mut Plan, subject: &'static str, config: &ConfigMap, note: &str) {
    let object = object(config);
    if config.immutable == Some(true) {
        plan.add(
            Level::Blocked,
            subject,
            format!("{object}: is immutable; make it anew without `immutable`"),
        );
    }
    let own = [BEFORE, PENDING];
    let others = config.annotations().iter();
    let others = others.filter(|it| !own.contains(&it.0.as_str()));
    let sizes = others.map(|(key, value)| key.len() + value.len());
    let own = BEFORE.len() + note.len() + PENDING.len() + "true".len();
    if own + sizes.sum::<usize>() > ANNOTATIONS_MAX {
        plan.add(Level::Blocked, subject, format!("{object}: is too large to be kept for --undo in an annotation, of which an object has 256 KiB at most; shorten the Corefile, or its annotations"));
    }
}

fn object(config: &ConfigMap) -> String {
    format!(
        "ConfigMap {}/{}",
        config.namespace().unwrap_or_default(),
        config.name_any()
    )
}

fn change(config: &ConfigMap, from: &str, to: String, note: Option<String>) -> Change {
    Change {
        namespace: config.namespace().unwrap_or_default(),
        name: config.name_any(),
        resource_version: config.resource_version().unwrap_or_default(),
        from: from.to_owned(),
        to,
        note,
        restart: false,
    }
}

/// Labels of those who keep ConfigMaps as they want them.
const MANAGERS: [(&str, &str, &str); 3] = [
    (
        "addonmanager.kubernetes.io/mode",
        "Reconcile",
        "an addon manager sets it back, as in AKS",
    ),
    (
        "eks.amazonaws.com/component",
        "coredns",
        "an update of the EKS add-on may set it back",
    ),
    (
        "objectset.rio.cattle.io/owner-name",
        "coredns",
        "k3s or RKE2 sets it back when its server restarts",
    ),
];

fn managed(plan: &mut Plan, object: &str, config: &ConfigMap) {
    let labels = config.labels().iter().chain(config.annotations());
    let managers = labels.filter_map(|(key, value)| {
        let manager = MANAGERS.iter().find(|it| key == it.0 && value == it.1);
        manager.map(|it| {
            format!(
                "{object}: {key}={value}: {}; run this with --check now and then",
                it.2
            )
        })
    });
    for text in managers {
        plan.add(Level::Note, "Corefile", text);
    }
}

fn node_local(plan: &mut Plan, observed: &Observed, args: &ConfigureArgs) {
    if !observed.node_local {
        return;
    }
    let subject = "NodeLocal DNS";
    let zones = args.zones();
    let object = format!("ConfigMap {}/{NODE_LOCAL}", args.coredns_namespace);
    let config = observed.node_local_config.as_ref();
    let Some((config, text)) = config.and_then(|it| Some((it, corefile_of(it)?))) else {
        let what = format!(
            "DaemonSet {NODE_LOCAL} is there, and {object} with its Corefile is not; have it forward {} to where it forwards {}",
            zones.clusterset, zones.cluster
        );
        plan.add(Level::Blocked, subject, what);
        return;
    };
    match corefile::configure_node_local(text, &zones) {
        Err(refusal) => plan.add(Level::Blocked, subject, format!("{object}: {refusal}")),
        Ok((edited, forwarding)) => {
            let corefile::Forwarding {
                cluster,
                clusterset,
                others,
            } = forwarding;
            plan.add(
                Level::Note,
                subject,
                format!(
                    "{} goes to {cluster}, {} to {clusterset}, the rest to {others}",
                    zones.cluster, zones.clusterset
                ),
            );
            plan.node_local = edit(plan, subject, config, text, edited);
        }
    }
}

#[cfg(test)]
mod tests;
