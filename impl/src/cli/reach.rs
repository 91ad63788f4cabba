//! The part of every role that asks whether its API server answers.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::components::Component;
use crate::{cluster::reach::Reach, telemetry::health::Checks};

/// The component that asks whether the API server answers, and what `/readyz` says of it.
pub(super) fn reach(
    registry: &mut Registry,
    client: &kube::Client,
    cancel: &CancellationToken,
) -> (Component, Checks) {
    let reach = Reach::register(registry);
    let (shown, client, stop) = (reach.clone(), client.clone(), cancel.clone());
    let component = Component {
        name: "reach",
        run: Box::pin(async move {
            stop.run_until_cancelled(reach.ask(&client)).await;
            Ok(())
        }),
    };
    (component, Arc::new(move || vec![shown.check()]))
}
