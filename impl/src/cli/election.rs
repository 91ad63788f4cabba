//! The election among replicas of the operator, as the flags ask for it.

use tombolo_core::names::Namespace;

use super::role_args::ElectionArgs;
use crate::{
    operator::{
        leadership::{self, Election, SettingsError},
        triggers::Queues,
    },
    status::pages::Controllers,
};

/// What is said of who leads, and of what is still to be done.
pub(super) fn controllers(election: &Election, queues: &Queues) -> Controllers {
    let (election, queues) = (election.clone(), queues.clone());
    Box::new(move || (election.look(), queues.look()))
}

/// How the replicas of an operator decide which one writes.
pub(super) fn of(args: &ElectionArgs, client: &kube::Client) -> Result<Election, SettingsError> {
    if !args.leader_election {
        return Ok(Election::uncontested());
    }
    let namespace = args.leader_election_namespace.as_ref();
    let namespace = namespace.map_or(client.default_namespace(), Namespace::as_str);
    let settings = leadership::Settings {
        namespace: namespace.to_owned(),
        name: leadership::LEASE_NAME.to_owned(),
        identity: leadership::identity(),
        lease_duration: args.leader_election_lease_duration,
        renew_deadline: args.leader_election_renew_deadline,
        retry_period: args.leader_election_retry_period,
    };
    settings.check()?;
    Ok(Election::by_lease(settings))
}
