//! What the fuzz targets share: inputs, and what has to hold for what a decoder accepts.
//!
//! An input is the key after the prefix of its kind, a newline, and the value.

use std::fmt::Debug;

use tombolo_core::{names::ClusterName, wire::Error};

/// The cluster whose records are read: the one that most of the recorded inputs are of.
pub fn cluster() -> ClusterName {
    "c1".try_into().expect("invariant: a cluster name")
}

/// Key suffix and value of an input.
pub fn split(input: &[u8]) -> Option<(&str, &[u8])> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    Some((str::from_utf8(&input[..end]).ok()?, &input[end + 1..]))
}

/// Checks what has to hold for every outcome of a decoder: an error has a short text and a reason; what was accepted can be
/// written, and comes back as the same record.
pub fn check<T: PartialEq + Debug>(
    decoded: Result<T, Error>,
    encode: impl Fn(&T) -> (String, Vec<u8>),
    decode: impl Fn(&[u8]) -> Result<T, Error>,
) {
    match decoded {
        Err(error) => {
            assert!(error.to_string().len() < 2_000, "{error}");
            assert!(!error.reason().is_empty());
        }
        Ok(record) => {
            let written = encode(&record);
            let again = decode(&written.1).expect("what was accepted and written is accepted");
            assert_eq!(encode(&again), written);
        }
    }
}
