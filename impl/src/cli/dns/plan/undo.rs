//! What has to be done to take back what was configured. Pure.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;

use super::{BEFORE, Change, Level, Plan, Rights, change, corefile_of, object, writable};
use crate::cli::dns::{
    args::ConfigureArgs,
    corefile::{self, Refusal, Zones},
    observe::{Observed, ROLE},
};

/// What has to be done to take it back.
pub fn undo(observed: &Observed, args: &ConfigureArgs) -> Plan {
    let mut plan = Plan::new();
    let zones = args.zones();
    plan.corefile = taken_back(
        &mut plan,
        "Corefile",
        &observed.config,
        &zones,
        corefile::undo,
    );
    plan.restart(observed, args);
    if let Some(config) = &observed.node_local_config {
        plan.node_local = taken_back(
            &mut plan,
            "NodeLocal DNS",
            config,
            &zones,
            corefile::undo_node_local,
        );
    }
    let after = plan
        .corefile
        .as_ref()
        .map_or_else(|| corefile_of(&observed.config), |it| Some(&it.to));
    let still = after
        .is_some_and(|it| corefile::configure(it, &zones).is_ok_and(|edited| edited.text == it));
    let granted = observed.own_role().is_some() || observed.own_binding().is_some();
    let roles = format!("ClusterRole and ClusterRoleBinding {ROLE}");
    match (granted, still) {
        (false, _) => plan.add(
            Level::Ok,
            "rights",
            format!("{roles}: not there, or not made by this command"),
        ),
        (true, true) => plan.add(
            Level::Note,
            "rights",
            format!("{roles}: kept, the Corefile serves the zone still"),
        ),
        (true, false) => {
            plan.rights = Rights::Revoke;
            plan.add(Level::Missing, "rights", format!("{roles}: to be deleted"));
        }
    }
    plan
}

type Undo = fn(&str, &str, &Zones) -> Result<String, Refusal>;

fn taken_back(
    plan: &mut Plan,
    subject: &'static str,
    config: &ConfigMap,
    zones: &Zones,
    undo: Undo,
) -> Option<Change> {
    let object = object(config);
    let text = corefile_of(config).unwrap_or_default();
    let Some(before) = config.annotations().get(BEFORE) else {
        plan.add(
            Level::Ok,
            subject,
            format!("{object}: was not configured by this command, or taken back already"),
        );
        return None;
    };
    match undo(text, before, zones) {
        Ok(to) => {
            plan.add(
                Level::Missing,
                subject,
                format!("{object}: to be taken back"),
            );
            writable(plan, subject, config, "");
            Some(change(config, text, to, None))
        }
        Err(refusal) => {
            plan.add(Level::Blocked, subject, format!("{object}: {refusal}"));
            None
        }
    }
}
