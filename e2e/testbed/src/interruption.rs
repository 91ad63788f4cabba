//! The end of a program whose clusters are to end with it.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::timeout,
};

/// Longest between the death of a process by a signal and this program's turn to see that it got the signal too.
const GRACE: Duration = Duration::from_secs(1);

/// Whether the signal came that the last caller of [`interruption`] listens to.
static LISTENER: Mutex<Option<watch::Receiver<bool>>> = Mutex::new(None);

/// Listens to SIGINT (Ctrl-C) and SIGTERM, from this call on and not only from when the future is first polled: say only then
/// that the program can be interrupted. The future ends with the first of them, and neither ends the process any more.
///
/// # Errors
/// That of the system when it does not let this process listen.
///
/// # Panics
/// When it is called outside a Tokio runtime.
pub fn interruption() -> io::Result<impl Future<Output = ()> + Send> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (came, mut listener) = watch::channel(false);
    *LISTENER.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        came.send_replace(true);
        // Whoever asks later is to find it.
        came.closed().await;
    });
    Ok(async move {
        // An error says that the runtime is ending, and this future with it.
        let _ = listener.wait_for(|came| *came).await;
    })
}

/// Does some work until it ends, or until the future of [`interruption`] does: `None`. A failure of the work that comes with the
/// interruption is part of it, and not told.
pub async fn unless_interrupted<T, E>(
    interrupt: impl Future<Output = ()>,
    work: impl Future<Output = Result<T, E>>,
) -> Option<Result<T, E>> {
    let ended = tokio::select! {
        biased;
        () = interrupt => return None,
        ended = work => ended,
    };
    let part_of_it = ended.is_err() && interrupted().await;
    (!part_of_it).then_some(ended)
}

/// Whether something that failed just now may have failed because this program is interrupted: Ctrl-C in a terminal reaches
/// also a process that is being started and is not in a group of its own yet. False at once when nobody listens.
pub(crate) async fn interrupted() -> bool {
    let listener = LISTENER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    match listener {
        Some(mut listener) => timeout(GRACE, listener.wait_for(|came| *came))
            .await
            .is_ok_and(|came| came.is_ok()),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, thread};

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_failure_is_told_unless_the_signal_comes_with_it() {
        let mut interrupt = pin!(interruption().unwrap());

        let alone = unless_interrupted(&mut interrupt, async { Err::<(), _>("alone") }).await;
        let with_signal = unless_interrupted(&mut interrupt, async {
            thread::spawn(|| kill_process(getpid(), Signal::INT));
            Err::<(), _>("killed too")
        });
        let with_signal = with_signal.await;
        let after = unless_interrupted(interrupt, async { Ok::<_, &str>(()) }).await;

        assert_eq!(alone, Some(Err("alone")));
        assert_eq!(with_signal, None);
        assert_eq!(after, None);
    }

    #[tokio::test]
    async fn work_that_ends_gives_what_it_gives() {
        let ended = unless_interrupted(std::future::pending(), async { Ok::<_, &str>(5) }).await;

        assert_eq!(ended, Some(Ok(5)));
    }
}
