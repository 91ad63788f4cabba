//! The command line: what a user types and what becomes of it.
//!
//! Exit codes: 0 done, 1 failed, 2 bad input (a flag, a file, a kubeconfig); `tombolo status` has more, see its help.

pub mod args;
pub mod certs;
pub mod components;
pub mod connect;
mod counters;
pub mod dns;
mod election;
pub mod explain_conflict;
mod interruption;
mod peer_args;
mod reach;
mod reflection;
mod render;
pub mod role_args;
mod roles;
mod status;

use anyhow::Result;

use crate::{
    cluster::client,
    kvstore::config::ConfigError,
    mesh::{config_dir, users},
    operator::leadership,
    telemetry::logs,
};
use args::{Cli, Command, Explain};

/// Carries out what the user asked for.
pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Crds => render::print(&tombolo_api::crds::yaml()),
        Command::Certs(command) => certs::run(&command),
        Command::Dns(command) => dns::run(&command),
        Command::Explain(Explain::Conflict(args)) => explain_conflict::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Connect(args) => connect::run(&args),
        Command::Disconnect(args) => connect::run_disconnect(&args),
        Command::Run(role) => {
            logs::install(cli.log_format, &cli.log_level)?;
            #[cfg(feature = "mutants")]
            if let Some(mutant) = tombolo_core::mutant::chosen() {
                tracing::warn!(
                    mutant,
                    "this build is wrong on purpose; it is for tests only"
                );
            }
            roles::run(role)
        }
    }
}

/// The exit code for an error: 2 when the user's input is at fault, that of a status that is not well, 1 otherwise.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(not_well) = error.downcast_ref::<status::NotWell>() {
        return not_well.exit_code();
    }
    if error.is::<interruption::Interrupted>() {
        return interruption::Interrupted::EXIT_CODE;
    }
    if error.is::<connect::NotSynced>() {
        return connect::NotSynced::EXIT_CODE;
    }
    if let Some(refused) = error.downcast_ref::<connect::ConnectError>() {
        return refused.exit_code();
    }
    let input = error.chain().any(|cause| {
        cause.is::<logs::Error>()
            || cause.is::<client::Error>()
            || cause.is::<ConfigError>()
            || cause.is::<config_dir::Error>()
            || cause.is::<roles::IdTooLarge>()
            || cause.is::<leadership::SettingsError>()
            || cause.is::<tombolo_core::identity::Error>()
            || cause.is::<explain_conflict::Error>()
            || cause.is::<certs::Error>()
            || cause.is::<users::Error>()
            || cause.is::<explain_conflict::ManifestError>()
            || cause.is::<status::Error>()
    });
    if input { 2 } else { 1 }
}

/// Says on standard error what went wrong.
pub fn report(error: &anyhow::Error) {
    render::note(&format!("tombolo: {}", message(error)));
}

/// The error and its causes on one line, without the causes that the text already tells.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain() {
        let (text, is_last) = told(cause);
        if message.is_empty() {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        if is_last {
            break;
        }
    }
    message
}

/// An error as people read it, and whether its causes say nothing more: an API server's has its sentence alone.
fn told(cause: &(dyn std::error::Error + 'static)) -> (String, bool) {
    let boxed = || cause.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    match cause.downcast_ref::<kube::Error>().or_else(boxed) {
        Some(error) => (client::said(error), matches!(error, kube::Error::Api(_))),
        None => (cause.to_string(), false),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_an_api_server_said_is_told_without_its_inner_parts() {
        let status = kube::core::Status::failure("no such verb", "Forbidden").with_code(403);
        let error = anyhow::Error::new(kube::Error::Api(Box::new(status))).context("cannot write");

        assert_eq!(message(&error), "cannot write: no such verb");
    }

    #[test]
    fn a_message_tells_each_cause_once() {
        let error = anyhow!("no such host").context("cannot connect: no such host");
        let error = error.context("peers failed");

        assert_eq!(
            message(&error),
            "peers failed: cannot connect: no such host"
        );
    }
}
