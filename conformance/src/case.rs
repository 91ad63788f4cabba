//! What a case is, and how it says why it failed.

use std::fmt;

use futures::future::BoxFuture;

use crate::{
    bugs::Bug,
    context::Context,
    rules::{self, Level, Rule},
};

/// A conformance case: a value, no registration.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Stable name, `group/short-name`; what filters match.
    pub id: &'static str,
    /// What must hold, as a sentence.
    pub title: &'static str,
    /// The rules it checks.
    pub rules: &'static [Rule],
    /// What clusters or implementation must offer; where one is missing, the case is not run.
    pub features: &'static [Feature],
    /// Row of the upstream suite (`sigs.k8s.io/mcs-api/conformance`) that it is at least as strict as.
    pub upstream: Option<&'static str>,
    /// Reported bugs that it would show.
    pub bugs: &'static [Bug],
    /// The step at which it fails where the API is installed and nothing implements it. Checked by a test.
    pub fails_first: &'static str,
    /// Runs it.
    pub run: for<'a> fn(&'a Context) -> BoxFuture<'a, Outcome>,
}

/// Whether an implementation can do without what a case checks. Results are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// KEP-1645 asks it of everybody.
    Core,
    /// It rests on something that KEP-1645 leaves open or merely recommends.
    Extended,
}

impl Group {
    /// Every group.
    pub const ALL: &'static [Self] = &[Self::Core, Self::Extended];

    /// Its name in reports of this suite.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Extended => "extended",
        }
    }

    /// The group of the upstream suite that it stands for.
    pub fn upstream(self) -> &'static str {
        match self {
            Self::Core => "Required",
            Self::Extended => "Optional",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Case {
    /// Core where it needs no feature but pods that run, and checks something that the KEP states as what happens.
    pub fn group(&self) -> Group {
        let must = |rule: &Rule| {
            rules::lookup(*rule).is_some_and(|entry| matches!(entry.level, Level::Must))
        };
        let asked = self.features.iter();
        let mut asked = asked.filter(|it| **it != Feature::Workloads);
        if asked.next().is_none() && self.rules.iter().any(must) {
            Group::Core
        } else {
            Group::Extended
        }
    }
}

/// How a case ends.
pub type Outcome = Result<(), Failure>;

/// Something that not every cluster or implementation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Pods that the suite can make ready and unready. They need a node without kubelet.
    Backends,
    /// Pods that run, and commands in them: nodes that run images.
    Workloads,
    /// Pods are told names in the ClusterSet's zone (`KEP-1645#80`: optional).
    Dns,
    /// Packets of pods reach clusterset IPs, wherever the backends are. Optional upstream.
    Connectivity,
    /// The implementation keeps EndpointSlices for imports (`KEP-1645#120`: optional).
    EndpointSlices,
    /// The implementation names the Service behind an import in the annotation
    /// `multicluster.kubernetes.io/derived-service`, as the reference controller of MCS-API does.
    DerivedService,
    /// Labels and annotations that the ServiceExport names travel to the import (`KEP-1645#16`: optional).
    ExportedMetadata,
    /// The clusters have both IP families.
    DualStack,
    /// Of equally old exports that of the lesser cluster name wins, as in Cilium. `KEP-1645#141` leaves ties open.
    TiesByName,
}

impl Feature {
    /// Every feature.
    pub const ALL: &'static [Self] = &[
        Self::Backends,
        Self::Workloads,
        Self::Dns,
        Self::Connectivity,
        Self::EndpointSlices,
        Self::DerivedService,
        Self::ExportedMetadata,
        Self::DualStack,
        Self::TiesByName,
    ];

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backends => "backends",
            Self::Workloads => "workloads",
            Self::Dns => "dns",
            Self::Connectivity => "connectivity",
            Self::EndpointSlices => "endpoint-slices",
            Self::DerivedService => "derived-service",
            Self::ExportedMetadata => "exported-metadata",
            Self::DualStack => "dual-stack",
            Self::TiesByName => "ties-by-name",
        }
    }

    /// The feature of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|feature| feature.as_str() == text)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a case failed: the step, where, what was expected, what was there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The step, e.g. `import appears`.
    pub step: &'static str,
    /// The cluster.
    pub cluster: String,
    /// What was expected, with the time that it was given.
    pub expected: String,
    /// What was seen last.
    pub observed: String,
    /// Who is to blame.
    pub blame: Blame,
}

impl Failure {
    /// The same of a step that sets a case up.
    pub(crate) fn of_set_up(self) -> Self {
        Self {
            blame: Blame::SetUp,
            ..self
        }
    }
}

/// What a failure speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The implementation did not do what the rules say.
    Implementation,
    /// An API server refused to set the case up: nothing is known about the implementation.
    SetUp,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step `{}` in cluster {}: expected {}; saw {}",
            self.step, self.cluster, self.expected, self.observed
        )
    }
}

impl std::error::Error for Failure {}
