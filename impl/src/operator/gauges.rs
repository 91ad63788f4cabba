//! What is measured when somebody looks: whether this replica leads, and how full the queues are.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};

use super::{leadership::Tenure, triggers::Queues};
use crate::{queue::Fill, status::answer::Work};

/// What a gauge shows of a queue.
type Shown = fn(&Fill) -> f64;

/// Gauges of one operator.
#[derive(Debug)]
struct Gauges {
    tenure: Tenure,
    queues: Queues,
}

/// Shows in a registry whether a tenure lasts, and how full the queues are.
pub fn register(registry: &mut Registry, tenure: Tenure, queues: &Queues) {
    let queues = queues.clone();
    registry.register_collector(Box::new(Gauges { tenure, queues }));
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let leads = i64::from(self.tenure.check().is_ok());
        let help = "Whether this replica may write: 1 for the leader, 0 for a standby";
        let metric = encoder.encode_descriptor("tombolo_leader", help, None, MetricType::Gauge)?;
        ConstGauge::new(leads).encode(metric)?;
        let fills = self
            .queues
            .all()
            .map(|(controller, queue)| (controller.as_str(), queue.fill()));
        let gauges: [(_, _, Shown); 3] = [
            (
                "tombolo_queue_depth",
                "Names that wait for a worker",
                |fill| count(fill.waiting),
            ),
            (
                "tombolo_queue_retries",
                "Names that failed and wait for their next attempt",
                |fill| count(fill.delayed),
            ),
            (
                "tombolo_queue_oldest_seconds",
                "For how long the oldest name that waits or is in work has been dirty",
                |fill| fill.oldest.unwrap_or_default().as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (controller, fill) in &fills {
                let labels = [("controller", *controller)];
                ConstGauge::new(value(fill)).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Queues {
    /// How full the queues are, for those who ask.
    pub fn look(&self) -> Vec<Work> {
        let controllers = self.all().map(|(of, queue)| (of.as_str(), queue.fill()));
        let misnamed = ("misnamed-exports", self.misnamed_exports.fill());
        let all = controllers.into_iter().chain([misnamed]);
        let count = |names: usize| u64::try_from(names).unwrap_or(u64::MAX);
        let work = all.map(|(controller, fill)| Work {
            controller: controller.to_owned(),
            waiting: count(fill.waiting),
            working: count(fill.working),
            retrying: count(fill.delayed),
            oldest_seconds: fill.oldest.map(|oldest| oldest.as_secs_f64()),
            held: fill.held,
        });
        work.collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "no queue is longer than 2^52")]
fn count(names: usize) -> f64 {
    names as f64
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use tombolo_core::names::NamespacedName;

    use super::*;

    #[test]
    fn a_look_shows_leadership_and_queues_as_of_now() {
        let (tenure, queues) = (Tenure::standby(), Queues::new());
        let mut registry = Registry::default();
        register(&mut registry, tenure, &queues);

        queues
            .service_import
            .add(NamespacedName::parse("shop", "web").unwrap());
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();

        for line in [
            "tombolo_leader 0",
            "tombolo_queue_depth{controller=\"service-import\"} 1.0",
            "tombolo_queue_depth{controller=\"service-export\"} 0.0",
            "tombolo_queue_retries{controller=\"service-import\"} 0.0",
            "# TYPE tombolo_queue_oldest_seconds gauge",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in:\n{text}"
            );
        }
    }
}
