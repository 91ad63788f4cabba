//! Rules of Kubernetes for what a record may say, so that one bad record cannot make the API server refuse an object of
//! ours for ever. Kubernetes, `apimachinery/pkg/util/validation` and `apis/core/validation`.

use std::{collections::BTreeMap, net::IpAddr};

use super::{Error, clip};

/// Longest qualified name after its prefix, and longest label value, in bytes. Kubernetes.
const NAME_MAX: usize = 63;
/// Longest prefix of a qualified name, in bytes. RFC 1123 subdomain.
const PREFIX_MAX: usize = 253;
/// Most bytes of annotations that a record may bring. Kubernetes, `TotalAnnotationSizeLimitB`, is 256 KiB for all annotations
/// of an object; 1 KiB of it is left to those that the importer adds.
const ANNOTATIONS_MAX_BYTES: usize = 255 * 1024;

const KEY_RULE: &str = "expected a qualified name: at most 63 letters, digits, '-', '_', '.', beginning and ending with a letter or digit, optionally after a DNS subdomain and '/'";
const VALUE_RULE: &str = "expected a label value: at most 63 letters, digits, '-', '_', '.', beginning and ending with a letter or digit, or nothing";

/// The error of a member that breaks a rule.
pub(super) fn broken(field: &'static str, value: &str, rule: &'static str) -> Error {
    Error::Rule {
        field,
        value: clip(value),
        rule,
    }
}

/// Checks keys and values of labels.
pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Error> {
    for (key, value) in labels {
        check_qualified_name("labels", key)?;
        if !is_label_value(value) {
            return Err(broken("labels", value, VALUE_RULE));
        }
    }
    Ok(())
}

/// Checks the keys of annotations and their total size.
pub(crate) fn check_annotations(annotations: &BTreeMap<String, String>) -> Result<(), Error> {
    let mut size = 0;
    for (key, value) in annotations {
        check_qualified_name("annotations", &key.to_ascii_lowercase())?;
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_MAX_BYTES {
        let rule = "expected at most 261120 bytes of annotations";
        return Err(broken("annotations", &size.to_string(), rule));
    }
    Ok(())
}

/// Checks a qualified name, for instance `example.com/name`.
pub(super) fn check_qualified_name(field: &'static str, name: &str) -> Result<(), Error> {
    let (prefix, local) = match name.split_once('/') {
        Some((prefix, local)) => (Some(prefix), local),
        None => (None, name),
    };
    let valid = !local.is_empty() && is_label_value(local) && prefix.is_none_or(is_subdomain);
    if valid {
        Ok(())
    } else {
        Err(broken(field, name, KEY_RULE))
    }
}

/// Whether a text may be the value of a label. An empty one may.
pub(super) fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return true;
    };
    bytes.len() <= NAME_MAX
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Whether a text is an RFC 1123 subdomain.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= PREFIX_MAX && text.split('.').all(|label| is_dns_label(label, PREFIX_MAX))
}

/// Whether a text is an RFC 1123 label of at most `max` bytes.
pub(super) fn is_dns_label(text: &str, max: usize) -> bool {
    let bytes = text.as_bytes();
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.len() <= max
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

/// Parses an address as Cilium's readers do.
pub(super) fn parse_address(text: &str) -> Result<IpAddr, Error> {
    if let Some((address, _)) = text.split_once('%')
        && address.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6())
    {
        return Err(Error::AddressZone(clip(text)));
    }
    text.parse().map_err(|_| Error::Address(clip(text)))
}

/// An address as Go's `net.IP` reads it: none when empty; an IPv4 address that is written as IPv6 is one of IPv4.
pub(super) fn optional_ip(text: &str) -> Result<Option<IpAddr>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    let address: IpAddr = text.parse().map_err(|_| Error::Ip(clip(text)))?;
    Ok(Some(address.to_canonical()))
}

/// Checks that an address may stand in an EndpointSlice. Kubernetes, `ValidateEndpointIP`.
pub(super) fn check_endpoint_address(field: &'static str, address: IpAddr) -> Result<(), Error> {
    let special = match address {
        IpAddr::V4(ip) => {
            ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.octets()[..3] == [224, 0, 0]
        }
        IpAddr::V6(ip) => {
            ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_unicast_link_local()
                || ip.segments()[0] & 0xff0f == 0xff02
                || ip.to_ipv4_mapped().is_some()
        }
    };
    if special {
        let rule =
            "expected an address that is not unspecified, loopback, link-local or IPv4-mapped";
        return Err(broken(field, &address.to_string(), rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_are_those_of_kubernetes() {
        for good in ["a", "app.kubernetes.io/name", "A_b.c-d", "x/y"] {
            assert!(check_qualified_name("labels", good).is_ok(), "{good:?}");
        }
        for bad in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "bad key!",
            "Upper.io/a",
            "-a",
            "a..b/c",
        ] {
            assert!(check_qualified_name("labels", bad).is_err(), "{bad:?}");
        }
        assert!(check_qualified_name("labels", &"a".repeat(63)).is_ok());
        assert!(check_qualified_name("labels", &"a".repeat(64)).is_err());
    }

    #[test]
    fn annotations_are_bounded_in_bytes() {
        let value = "x".repeat(ANNOTATIONS_MAX_BYTES);
        let annotations = BTreeMap::from([("a".to_owned(), value)]);

        assert_eq!(
            check_annotations(&annotations).unwrap_err().reason(),
            "BreaksRule"
        );
    }

    #[test]
    fn special_addresses_are_no_endpoints() {
        for bad in [
            "0.0.0.0",
            "127.0.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(
                check_endpoint_address("backends", bad.parse().unwrap()).is_err(),
                "{bad}"
            );
        }
        for good in ["10.0.0.1", "192.0.2.1", "fd00::1"] {
            assert!(
                check_endpoint_address("backends", good.parse().unwrap()).is_ok(),
                "{good}"
            );
        }
    }
}
