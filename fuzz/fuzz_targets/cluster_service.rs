//! `cluster_service::decode`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::wire::cluster_service;
use tombolo_fuzz::{check, cluster, split};

fuzz_target!(|input: &[u8]| {
    let Some((suffix, value)) = split(input) else {
        return;
    };
    let cluster = cluster();
    let decode = |value: &[u8]| cluster_service::decode(&cluster, suffix, value, &mut Vec::new());
    check(decode(value), cluster_service::encode, decode);
});
