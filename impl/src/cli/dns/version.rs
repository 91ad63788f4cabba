//! The version of CoreDNS, from the tag of its image.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// A version of CoreDNS: three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u16, u16, u16);

/// The first version whose plugin `kubernetes` has the option `multicluster` (coredns/coredns#7266).
pub const FIRST: Version = Version(1, 12, 2);

/// A text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected a version such as 1.12.2")]
pub struct BadVersion;

impl Version {
    /// The version that an image's tag tells, such as `v1.11.4-eksbuild.2`; none where there is no tag, or another one.
    pub fn of_image(image: &str) -> Option<Self> {
        let name = image.split('@').next().unwrap_or(image);
        let (_, tag) = name.rsplit('/').next()?.split_once(':')?;
        tag.parse().ok()
    }
}

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Self, BadVersion> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut numbers = text.splitn(3, '.').map(|it| {
            let end = it.find(|c: char| !c.is_ascii_digit()).unwrap_or(it.len());
            let ends_well = it[end..].is_empty() || it[end..].starts_with(['-', '+', '_', '.']);
            ends_well.then(|| it[..end].parse().ok()).flatten()
        });
        let mut next = || numbers.next().flatten().ok_or(BadVersion);
        Ok(Self(next()?, next()?, next()?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "registry.k8s.io/coredns/coredns:v1.12.2",
        Some(Version(1, 12, 2)),
        true
    )]
    #[case("registry:5000/coredns:1.9.3", Some(Version(1, 9, 3)), false)]
    #[case(
        "602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/coredns:v1.12.10-eksbuild.2",
        Some(Version(1, 12, 10)),
        true
    )]
    #[case("coredns/coredns:1.12.2@sha256:0123", Some(Version(1, 12, 2)), true)]
    #[case("coredns/coredns@sha256:0123", None, false)]
    #[case("registry:5000/coredns", None, false)]
    #[case("coredns:latest", None, false)]
    #[case("coredns:1.12", None, false)]
    #[case("coredns:1.12.2x", None, false)]
    fn the_tag_of_an_image_tells_the_version(
        #[case] image: &str,
        #[case] expected: Option<Version>,
        #[case] enough: bool,
    ) {
        let version = Version::of_image(image);

        assert_eq!(version, expected);
        assert_eq!(version.is_some_and(|it| it >= FIRST), enough);
    }
}
