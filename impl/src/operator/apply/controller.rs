//! Who writes, and how: names for field managers, logs and metrics.

use std::fmt;

/// The controllers, each with its own field manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// Installs the CustomResourceDefinitions.
    Crds,
    /// ServiceImports.
    ServiceImport,
    /// Status of ServiceExports.
    ServiceExport,
    /// Derived Services.
    DerivedService,
    /// Local EndpointSlices, mirrored to derived Services.
    EndpointSliceMirror,
    /// EndpointSlices of remote endpoints.
    EndpointSliceSync,
}

impl Controller {
    /// Name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crds => "crds",
            Self::ServiceImport => "service-import",
            Self::ServiceExport => "service-export",
            Self::DerivedService => "derived-service",
            Self::EndpointSliceMirror => "endpoint-slice-mirror",
            Self::EndpointSliceSync => "endpoint-slice-sync",
        }
    }

    /// Name under which the API server records which fields it owns. STABLE: a change would leave orphaned fields behind.
    pub fn field_manager(self) -> &'static str {
        match self {
            Self::Crds => "tombolo-crds",
            Self::ServiceImport => "tombolo-import",
            Self::ServiceExport => "tombolo-export",
            Self::DerivedService => "tombolo-derived",
            Self::EndpointSliceMirror => "tombolo-mirror",
            Self::EndpointSliceSync => "tombolo-sync",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kinds of writes, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Server-side apply of an object.
    Apply,
    /// Removal of fields that nobody should have set.
    Strip,
    /// Server-side apply of a status.
    Status,
    /// Deletion.
    Delete,
    /// An Event.
    Event,
}

impl Verb {
    /// Name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Strip => "strip",
            Self::Status => "status",
            Self::Delete => "delete",
            Self::Event => "event",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_managers_are_those_that_earlier_versions_used() {
        let managers: Vec<_> = [
            Controller::ServiceImport,
            Controller::ServiceExport,
            Controller::DerivedService,
            Controller::EndpointSliceMirror,
            Controller::EndpointSliceSync,
        ]
        .map(Controller::field_manager)
        .into();

        assert_eq!(
            managers,
            [
                "tombolo-import",
                "tombolo-export",
                "tombolo-derived",
                "tombolo-mirror",
                "tombolo-sync"
            ]
        );
    }
}
