//! Metrics that are made when they are asked for, from what the process knows at that time. What is gone has no series.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, exemplar::Exemplar},
};

/// Name and help of a metric. Names of counters get `_total` when they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
}

impl Metric {
    /// A metric.
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help }
    }

    /// Begins it as a gauge.
    pub fn gauge<'e>(
        &'e self,
        encoder: &'e mut DescriptorEncoder<'_>,
    ) -> Result<Series<'e>, fmt::Error> {
        let kind = MetricType::Gauge;
        Ok(Series(
            encoder.encode_descriptor(self.name, self.help, None, kind)?,
        ))
    }

    /// Begins it as a counter.
    pub fn counter<'e>(
        &'e self,
        encoder: &'e mut DescriptorEncoder<'_>,
    ) -> Result<Series<'e>, fmt::Error> {
        let kind = MetricType::Counter;
        Ok(Series(
            encoder.encode_descriptor(self.name, self.help, None, kind)?,
        ))
    }
}

/// A family that is announced also while it has no series, so that whoever looks can see that it exists.
#[derive(Debug)]
pub struct Announced<M>(pub M);

impl<M: EncodeMetric> EncodeMetric for Announced<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

/// The series of one metric.
#[derive(Debug)]
pub struct Series<'e>(MetricEncoder<'e>);

impl Series<'_> {
    /// One series of a gauge.
    pub fn set(
        &mut self,
        labels: &impl EncodeLabelSet,
        value: impl EncodeGaugeValue,
    ) -> Result<(), fmt::Error> {
        self.0.encode_family(labels)?.encode_gauge(&value)
    }

    /// One series of a counter.
    pub fn count(&mut self, labels: &impl EncodeLabelSet, value: u64) -> Result<(), fmt::Error> {
        let exemplar: Option<&Exemplar<Vec<(String, String)>, u64>> = None;
        self.0
            .encode_family(labels)?
            .encode_counter(&value, exemplar)
    }
}
