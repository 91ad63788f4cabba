//! `cluster_config::decode`. The key says nothing about the value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::wire::cluster_config::{decode, encode};
use tombolo_fuzz::{check, cluster, split};

fuzz_target!(|input: &[u8]| {
    if let Some((_, value)) = split(input) {
        check(decode(value), |config| encode(&cluster(), config), decode);
    }
});
