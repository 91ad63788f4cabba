//! `endpoint_slice::decode` behind the frame, whose checksum hardly any changed byte passes: the input has the message, not
//! yet compressed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_core::wire::endpoint_slice::{decode, encode, pack};
use tombolo_fuzz::{check, cluster, split};

fuzz_target!(|input: &[u8]| {
    let Some((suffix, message)) = split(input) else {
        return;
    };
    let decode = |value: &[u8]| decode(&cluster(), suffix, value, &mut Vec::new());
    check(decode(&pack(message)), encode, decode);
});
