//! Blocking work, such as reading a file, from async code.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::cli::CommandFailure;

/// How long a disk may take to answer.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Runs blocking work on a thread of its own and waits for it up to [`WAIT_MAX`]. The runtime's blocking threads would
/// delay the end of the process, because a call to an unreachable network mount never returns.
pub async fn blocking_with_timeout<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CommandFailure> {
    let (sender, receiver) = oneshot::channel();
    let thread = std::thread::Builder::new().name("blocking".to_owned());
    // After a timeout the receiver is gone and the result is dropped.
    let started = thread.spawn(move || sender.send(work()).map_err(drop).unwrap_or_default());
    started.map_err(|error| CommandFailure::of(what, error))?;
    match tokio::time::timeout(WAIT_MAX, receiver).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_)) => Err(CommandFailure::of(what, "the thread panicked")),
        Err(_) => Err(CommandFailure::of(what, format!("no answer within {WAIT_MAX:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::blocking_with_timeout;

    #[tokio::test]
    async fn result_of_blocking_work_is_returned() {
        assert_eq!(blocking_with_timeout("adding", || 1 + 1).await.ok(), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn blocking_work_without_an_answer_times_out() {
        let (_sender, hangs) = std::sync::mpsc::channel::<()>();
        let waited = blocking_with_timeout("waiting", move || hangs.recv()).await;
        assert_eq!(waited.err().map(|failure| failure.to_string()).as_deref(), Some("waiting: no answer within 10s"));
    }
}
