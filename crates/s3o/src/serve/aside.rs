//! Work that may wait for a disk, beside everything else.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::cli::Failure;

/// How long a disk may take to answer.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Does something on a thread of its own and waits for it, a while at most. The runtime has threads for that, too, but the
/// end of the process waits for those, and a mount that is gone never answers.
pub(super) async fn aside<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("aside".to_owned());
    // Nobody may be waiting any more when it is done.
    let started = thread.spawn(move || answer.send(work()).map_err(drop).unwrap_or_default());
    started.map_err(|error| Failure::of(what, error))?;
    match tokio::time::timeout(WAIT_MAX, answered).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(Failure::of(what, "it came to no end")),
        Err(_) => Err(Failure::of(what, format!("no answer within {WAIT_MAX:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::aside;

    #[tokio::test]
    async fn what_is_done_aside_is_answered() {
        assert_eq!(aside("adding", || 1 + 1).await.ok(), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_answers_is_given_up() {
        let (_held, hangs) = std::sync::mpsc::channel::<()>();
        let waited = aside("waiting", move || hangs.recv()).await;
        assert_eq!(waited.err().map(|failure| failure.to_string()).as_deref(), Some("waiting: no answer within 10s"));
    }
}
