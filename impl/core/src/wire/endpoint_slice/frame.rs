//! The outer layer of an `endpointslices` record: one zstd frame, or several, with a checksum.

use std::io::{self, Read, Write};

use zstd::stream::{Encoder, read::Decoder};

use super::super::{Error, MAX_VALUE_BYTES, clip};

/// Largest message that is unpacked, in bytes. 16 MiB, as in Cilium (`maxDecodeSize`).
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Largest window that a frame may ask for, as a power of two of bytes: no frame needs more than the largest message.
const WINDOW_LOG_MAX: u32 = 24;

/// How hard to compress. 3 is the default of zstd, and about what Cilium's writer does.
const LEVEL: i32 = 3;

/// Packs a message.
pub(super) fn pack(message: &[u8]) -> Vec<u8> {
    let infallible = "invariant: compressing into memory cannot fail";
    let mut encoder = Encoder::new(Vec::new(), LEVEL).expect(infallible);
    encoder.include_checksum(true).expect(infallible);
    let size = u64::try_from(message.len()).ok();
    encoder.set_pledged_src_size(size).expect(infallible);
    encoder.write_all(message).expect(infallible);
    encoder.finish().expect(infallible)
}

/// Unpacks a message of at most [`MAX_MESSAGE_BYTES`] from a value of at most [`MAX_VALUE_BYTES`]; stops as soon as it is
/// larger, whatever the frame says of its size.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    if bytes.len() > MAX_VALUE_BYTES {
        return Err(Error::TooLarge { size: bytes.len() });
    }
    if bytes.is_empty() {
        // As in Cilium: no frame at all is an empty message, which its checks refuse.
        return Ok(Vec::new());
    }
    let broken = |error: io::Error| Error::Frame(clip(&error.to_string()));
    let mut decoder = Decoder::with_buffer(bytes).map_err(broken)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(broken)?;
    let mut message = Vec::new();
    let limit = MAX_MESSAGE_BYTES as u64 + 1;
    decoder
        .take(limit)
        .read_to_end(&mut message)
        .map_err(broken)?;
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(Error::MessageTooLarge);
    }
    Ok(message)
}
