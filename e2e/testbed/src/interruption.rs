//! The end of a program whose clusters are to end with it.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Listens to SIGINT (Ctrl-C) and SIGTERM, from this call on and not only from when the future is first polled: say only then
/// that the program can be interrupted. The future ends with the first of them, and neither ends the process any more.
///
/// # Errors
/// That of the system when it does not let this process listen.
pub fn interruption() -> io::Result<impl Future<Output = ()> + Send> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
