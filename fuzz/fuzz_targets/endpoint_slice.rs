//! `endpoint_slice::decode`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::wire::endpoint_slice;
use tombolo_fuzz::{check, cluster, split};

fuzz_target!(|input: &[u8]| {
    let Some((suffix, value)) = split(input) else {
        return;
    };
    let cluster = cluster();
    let decode = |value: &[u8]| endpoint_slice::decode(&cluster, suffix, value, &mut Vec::new());
    check(decode(value), endpoint_slice::encode, decode);
});
