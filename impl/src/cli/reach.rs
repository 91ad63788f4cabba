//! The part of every role that asks whether its API server answers.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::{components::Component, role_args::ClusterArgs};
use crate::{
    cluster::{
        client::{self, Error},
        heard::Heard,
        reach::Reach,
    },
    telemetry::health::Checks,
};

/// A client of the API server that is listened to.
pub(super) struct ListenedTo {
    pub(super) client: kube::Client,
    heard: Heard,
}

/// The client that the flags ask for.
pub(super) async fn client_of(args: &ClusterArgs) -> Result<ListenedTo, Error> {
    let heard = Heard::default();
    let (file, context) = (args.kubeconfig.as_deref(), args.context.as_deref());
    let client = client::listened_to(file, context, &heard).await?;
    Ok(ListenedTo { client, heard })
}

impl ListenedTo {
    /// The component that asks whether the API server answers, and what is found out.
    pub(super) fn reach(
        &self,
        registry: &mut Registry,
        cancel: &CancellationToken,
    ) -> (Component, Reach) {
        let reach = Reach::register(registry, self.client.clone(), self.heard.clone());
        let (asking, stop) = (reach.clone(), cancel.clone());
        let component = Component {
            name: "reach",
            run: Box::pin(async move {
                stop.run_until_cancelled(asking.ask()).await;
                Ok(())
            }),
        };
        (component, reach)
    }
}

/// What `/readyz` says of the API server.
pub(super) fn checks(reach: &Reach) -> Checks {
    let reach = reach.clone();
    Arc::new(move || vec![reach.check()])
}
