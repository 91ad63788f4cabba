//! `identity::decode`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::wire::identity;
use tombolo_fuzz::{check, cluster, split};

fuzz_target!(|input: &[u8]| {
    let Some((suffix, value)) = split(input) else {
        return;
    };
    let cluster = cluster();
    let decode = |value: &[u8]| identity::decode(&cluster, suffix, value);
    check(decode(value), identity::encode, decode);
});
