//! The inner layer of an `endpointslices` record: a protobuf message. STABLE.
//!
//! Field numbers are those of Cilium's `ClusterEndpointSlice`, and of Kubernetes' `discovery/v1` for endpoints and ports.
//! Members that are there count as there, also when they are empty: the writers of Go write them so, and a missing `ready`
//! is not a false one. Members that this format does not know are skipped.

use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

use super::super::{Error, MAX_ADDRESSES, MAX_ENTRIES, MAX_PORTS, clip};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Slice {
    #[prost(string, optional, tag = "1")]
    pub(super) cluster: Option<String>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) cluster_id: Option<u32>,
    #[prost(string, optional, tag = "3")]
    pub(super) namespace: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) name: Option<String>,
    #[prost(message, repeated, tag = "5")]
    pub(super) labels: Vec<Entry>,
    #[prost(message, repeated, tag = "6")]
    pub(super) annotations: Vec<Entry>,
    #[prost(string, optional, tag = "7")]
    pub(super) address_type: Option<String>,
    #[prost(message, repeated, tag = "8")]
    pub(super) endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "9")]
    pub(super) ports: Vec<Port>,
}

/// An entry of a map.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(string, optional, tag = "1")]
    pub(super) key: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Endpoint {
    #[prost(string, repeated, tag = "1")]
    pub(super) addresses: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) conditions: Option<Conditions>,
    #[prost(string, optional, tag = "3")]
    pub(super) hostname: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub(super) node_name: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub(super) zone: Option<String>,
    #[prost(message, optional, tag = "8")]
    pub(super) hints: Option<Hints>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Conditions {
    #[prost(bool, optional, tag = "1")]
    pub(super) ready: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub(super) serving: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub(super) terminating: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Hints {
    #[prost(message, repeated, tag = "1")]
    pub(super) for_zones: Vec<ForZone>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ForZone {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Port {
    #[prost(string, optional, tag = "1")]
    pub(super) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) protocol: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub(super) number: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub(super) app_protocol: Option<String>,
}

/// Reads a message. Counts what can be repeated before anything is built: an empty endpoint takes two bytes here, and a
/// hundred times as many in memory.
pub(super) fn decode(bytes: &[u8]) -> Result<Slice, Error> {
    let mut counts = Counts::default();
    counts.slice(bytes).map_err(broken)?;
    counts.check()?;
    Slice::decode(bytes).map_err(broken)
}

fn broken(error: DecodeError) -> Error {
    Error::Message(clip(&error.to_string()))
}

#[derive(Default)]
struct Counts {
    labels: usize,
    annotations: usize,
    endpoints: usize,
    ports: usize,
    addresses: usize,
    zones: usize,
}

impl Counts {
    fn slice(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        each_field(bytes, |tag, endpoint| {
            match tag {
                5 => self.labels += 1,
                6 => self.annotations += 1,
                8 => {
                    self.endpoints += 1;
                    self.endpoint(endpoint)?;
                }
                9 => self.ports += 1,
                _ => {}
            }
            Ok(())
        })
    }

    fn endpoint(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        each_field(bytes, |tag, hints| {
            match tag {
                1 => self.addresses += 1,
                8 => each_field(hints, |tag, _| {
                    self.zones += usize::from(tag == 1);
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })
    }

    fn check(&self) -> Result<(), Error> {
        for (field, count, max) in [
            ("labels", self.labels, MAX_ENTRIES),
            ("annotations", self.annotations, MAX_ENTRIES),
            ("endpoints", self.endpoints, MAX_ADDRESSES),
            ("ports", self.ports, MAX_PORTS),
            ("endpoints.addresses", self.addresses, MAX_ADDRESSES),
            ("endpoints.hints.forZones", self.zones, MAX_ADDRESSES),
        ] {
            if count > max {
                return Err(Error::TooMany { field, count, max });
            }
        }
        Ok(())
    }
}

/// Calls `visit` with number and content of each member that has a length; the others are skipped.
fn each_field<'a>(
    mut bytes: &'a [u8],
    mut visit: impl FnMut(u32, &'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        if wire_type == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
            let Some((content, rest)) = bytes.split_at_checked(length) else {
                // What is cut off is for the real decoder to complain of.
                return Ok(());
            };
            visit(tag, content)?;
            bytes = rest;
        } else {
            skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
        }
    }
    Ok(())
}
