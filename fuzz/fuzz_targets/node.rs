//! `node::decode`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::wire::node;
use tombolo_fuzz::{check, cluster, split};

fuzz_target!(|input: &[u8]| {
    let Some((suffix, value)) = split(input) else {
        return;
    };
    let cluster = cluster();
    let decode = |value: &[u8]| node::decode(&cluster, suffix, value);
    check(decode(value), node::encode, decode);
});
