//! `ip::decode`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::wire::ip;
use tombolo_fuzz::{check, split};

fuzz_target!(|input: &[u8]| {
    let Some((suffix, value)) = split(input) else {
        return;
    };
    let decode = |value: &[u8]| ip::decode(suffix, value, &mut Vec::new());
    check(decode(value), ip::encode, decode);
});
