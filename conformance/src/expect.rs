//! Waiting on conditions, and the questions that most cases ask. Nothing here sleeps instead of looking.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use tokio::sync::watch;
use tombolo_api::{
    conditions::CONFLICT,
    v1beta1::{ServiceExport, ServiceImport},
};

use crate::{
    case::{Failure, Outcome},
    connection::with_causes,
    context::{Context, Wait},
    objects::HELLO,
};

mod imports;

pub use imports::{describe, of_type, port_texts, with_ports};

/// What was seen instead of what was expected.
#[derive(Debug)]
pub struct Seen(String);

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Seen {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Seen {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<kube::Error> for Seen {
    fn from(error: kube::Error) -> Self {
        let error = with_causes(&error);
        Self(format!("an error of the API server: {error}"))
    }
}

impl Context {
    /// Looks until the probe is content, for the budget to appear, and once more after it.
    pub async fn until<T, F, Fut>(
        &self,
        step: &'static str,
        cluster: usize,
        expected: &str,
        probe: F,
    ) -> Result<T, Failure>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Seen>>,
    {
        self.until_every(self.budgets.poll, step, (cluster, expected), probe)
            .await
    }

    /// The same, with at most that time between two looks: for what changes without a change in the namespace.
    pub async fn until_every<T, F, Fut>(
        &self,
        poll: Duration,
        step: &'static str,
        of: (usize, &str),
        probe: F,
    ) -> Result<T, Failure>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Seen>>,
    {
        let pace = (poll, self.budgets.appear);
        self.until_within(pace, step, of, probe).await
    }

    /// The same within that budget.
    pub(crate) async fn until_within<T, F, Fut>(
        &self,
        (poll, budget): (Duration, Duration),
        step: &'static str,
        (cluster, expected): (usize, &str),
        probe: F,
    ) -> Result<T, Failure>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, Seen>>,
    {
        let start = Instant::now();
        let mut changes = self.changes(cluster);
        loop {
            changes.mark_unchanged();
            // A look that takes long is not the last one because of that.
            let over = start.elapsed() >= budget;
            match probe().await {
                Ok(value) => {
                    let took = start.elapsed();
                    self.waited(Wait { step, took });
                    return Ok(value);
                }
                Err(Seen(seen)) if over => {
                    let expected = format!("{expected} within {budget:?}");
                    return Err(self.failure(step, cluster, expected, seen));
                }
                Err(_) => {
                    let left = budget.saturating_sub(start.elapsed());
                    change_or(&mut changes, poll.min(left)).await;
                }
            }
        }
    }

    /// Looks for the whole budget to stay; fails as soon as the probe is not content.
    pub async fn stays<F, Fut>(
        &self,
        step: &'static str,
        cluster: usize,
        expected: &str,
        probe: F,
    ) -> Outcome
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<(), Seen>>,
    {
        let start = Instant::now();
        let mut changes = self.changes(cluster);
        loop {
            changes.mark_unchanged();
            if let Err(Seen(seen)) = probe().await {
                let (after, stay) = (start.elapsed(), self.budgets.stay);
                let expected = format!("{expected} for {stay:?}");
                return Err(self.failure(
                    step,
                    cluster,
                    expected,
                    format!("after {after:.1?} {seen}"),
                ));
            }
            let left = self.budgets.stay.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            change_or(&mut changes, self.budgets.poll.min(left)).await;
        }
    }

    /// The same in several clusters at once.
    pub async fn stays_in<F, Fut>(
        &self,
        step: &'static str,
        clusters: impl IntoIterator<Item = usize>,
        expected: &str,
        probe: F,
    ) -> Outcome
    where
        F: Fn(usize) -> Fut,
        Fut: Future<Output = Result<(), Seen>>,
    {
        let probe = &probe;
        let looks = clusters
            .into_iter()
            .map(|cluster| self.stays(step, cluster, expected, move || probe(cluster)));
        try_join_all(looks).await.map(|_| ())
    }

    /// Waits in one cluster for an import that is accepted.
    pub async fn import_until(
        &self,
        step: &'static str,
        cluster: usize,
        expected: &str,
        accept: impl Fn(&ServiceImport) -> Result<(), String>,
    ) -> Result<ServiceImport, Failure> {
        let accept = &accept;
        self.until(step, cluster, expected, || async move {
            let import = self.import(cluster).await?.ok_or("no ServiceImport")?;
            accept(&import)?;
            Ok(import)
        })
        .await
    }

    /// Waits in those clusters at once for imports that are accepted.
    pub async fn imports_until(
        &self,
        step: &'static str,
        clusters: impl IntoIterator<Item = usize>,
        expected: &str,
        accept: impl Fn(&ServiceImport) -> Result<(), String>,
    ) -> Result<Vec<ServiceImport>, Failure> {
        let accept = &accept;
        let waits = clusters
            .into_iter()
            .map(|cluster| self.import_until(step, cluster, expected, accept));
        try_join_all(waits).await
    }

    /// Waits in every cluster until the import is gone.
    pub async fn imports_gone(&self, step: &'static str) -> Outcome {
        let gone = |cluster| {
            self.until(step, cluster, "no ServiceImport", move || async move {
                match self.import(cluster).await? {
                    None => Ok(()),
                    Some(import) => Err(describe(&import).into()),
                }
            })
        };
        try_join_all(self.everywhere().map(gone)).await.map(|_| ())
    }

    /// Checks in every cluster that the very same imports stay. A new one in place of the old is a failure.
    pub async fn imports_stay(&self, step: &'static str, imports: &[ServiceImport]) -> Outcome {
        let stays = |(cluster, before): (usize, &ServiceImport)| {
            let uid = before.uid();
            self.stays(step, cluster, "the same ServiceImport to stay", move || {
                let uid = uid.clone();
                async move {
                    match self.import(cluster).await? {
                        Some(import) if import.uid() == uid => Ok(()),
                        Some(_) => Err("another ServiceImport in its place".into()),
                        None => Err("no ServiceImport".into()),
                    }
                }
            })
        };
        try_join_all(imports.iter().enumerate().map(stays))
            .await
            .map(|_| ())
    }

    /// Checks that there is no import in those clusters, all the time.
    pub async fn imports_stay_away(
        &self,
        step: &'static str,
        clusters: impl IntoIterator<Item = usize>,
    ) -> Outcome {
        let no_import = |cluster| async move {
            match self.import(cluster).await? {
                None => Ok(()),
                Some(import) => Err(describe(&import).into()),
            }
        };
        self.stays_in(step, clusters, "no ServiceImport", no_import)
            .await
    }

    /// Waits for a condition of the export in one cluster; any reason will do where none is given.
    pub async fn condition_until(
        &self,
        step: &'static str,
        cluster: usize,
        wanted: (&str, &str),
        reason: Option<&str>,
    ) -> Result<Condition, Failure> {
        self.condition_of(step, (cluster, HELLO), wanted, reason)
            .await
    }

    /// The same for the export of that name.
    pub async fn condition_of(
        &self,
        step: &'static str,
        (cluster, name): (usize, &str),
        wanted: (&str, &str),
        reason: Option<&str>,
    ) -> Result<Condition, Failure> {
        let (kind, status) = wanted;
        let expected = match reason {
            Some(reason) => format!("condition {kind}={status} with reason {reason}"),
            None => format!("condition {kind}={status}"),
        };
        let exports = self.api::<ServiceExport>(cluster);
        let exports = &exports;
        self.until(step, cluster, &expected, || async move {
            let conditions = conditions(&exports.get(name).await?);
            let found = conditions.iter().find(|condition| condition.type_ == kind);
            match found {
                Some(condition)
                    if condition.status == status
                        && reason.is_none_or(|reason| condition.reason == reason) =>
                {
                    Ok(condition.clone())
                }
                Some(condition) => Err(format!(
                    "{kind}={} with reason {}: {}",
                    condition.status, condition.reason, condition.message
                )
                .into()),
                None => Err(format!("no condition {kind}").into()),
            }
        })
        .await
    }

    /// Waits until the exports in those clusters are in conflict for all of `reasons`, and for nothing but these and `also`.
    pub async fn conflicts_until(
        &self,
        step: &'static str,
        clusters: impl IntoIterator<Item = usize>,
        reasons: &[&str],
        also: &[&str],
    ) -> Result<Vec<Condition>, Failure> {
        let expected = format!("Conflict=True with reason {}", reasons.join(","));
        let one = |cluster| {
            let expected = &expected;
            async move {
                self.until(step, cluster, expected, || async move {
                    let export = self.api::<ServiceExport>(cluster).get(HELLO).await?;
                    let found = conditions(&export)
                        .into_iter()
                        .find(|condition| condition.type_ == CONFLICT)
                        .ok_or("no condition Conflict")?;
                    let named: Vec<_> = found.reason.split(',').collect();
                    let all = reasons.iter().all(|reason| named.contains(reason));
                    let mut named = named.iter();
                    let only = named.all(|it| reasons.contains(it) || also.contains(it));
                    if found.status == "True" && all && only {
                        return Ok(found);
                    }
                    Err(format!(
                        "Conflict={} with reason {}: {}",
                        found.status, found.reason, found.message
                    )
                    .into())
                })
                .await
            }
        };
        try_join_all(clusters.into_iter().map(one)).await
    }

    /// Waits for a condition of the exports in several clusters.
    pub async fn conditions_until(
        &self,
        step: &'static str,
        clusters: impl IntoIterator<Item = usize>,
        wanted: (&str, &str),
        reason: Option<&str>,
    ) -> Outcome {
        let waits = clusters
            .into_iter()
            .map(|cluster| self.condition_until(step, cluster, wanted, reason));
        try_join_all(waits).await.map(|_| ())
    }
}

/// Waits for a change, at most so long.
async fn change_or(changes: &mut watch::Receiver<()>, longest: Duration) {
    // Neither a change nor its absence is an error; without watches there is only the time.
    if let Ok(Err(_)) = tokio::time::timeout(longest, changes.changed()).await {
        tokio::time::sleep(longest).await;
    }
}

/// The conditions of an export.
pub fn conditions(export: &ServiceExport) -> Vec<Condition> {
    let status = export.status.clone().unwrap_or_default();
    status.conditions.unwrap_or_default()
}
