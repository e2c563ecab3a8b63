//! Caches a count that reads every row: the longer a count took, the longer its result is reused.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_model::clock::{Clock, Timestamp};

/// A result is reused for this many times as long as the count took: counting takes at most a fiftieth of the time.
const REUSE_FACTOR: u32 = 50;
/// How long a caller waits for a running count before it gets the previous result.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// A count and its last result.
pub struct CachedCount<T> {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<CountState<T>>>,
}

struct CountState<T> {
    last: Option<CountResult<T>>,
    is_running: bool,
}

struct CountResult<T> {
    value: Arc<T>,
    started_at: Timestamp,
    finished_at: Timestamp,
}

impl<T> CountState<T> {
    fn is_due(&self, now: Timestamp) -> bool {
        let Some(last) = self.last.as_ref().filter(|_| !self.is_running) else { return !self.is_running };
        // A clock that was set back must not keep a result forever.
        let reuse = last.finished_at.since(last.started_at) * REUSE_FACTOR;
        now < last.finished_at || now.since(last.finished_at) >= reuse
    }
}

/// A running count. Dropping it, also by a panic, lets the next one start.
struct RunningCount<T>(Arc<Mutex<CountState<T>>>);

impl<T> Drop for RunningCount<T> {
    fn drop(&mut self) {
        self.0.lock().is_running = false;
    }
}

impl<T: Send + Sync + 'static> CachedCount<T> {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::new(Mutex::new(CountState { last: None, is_running: false })) }
    }

    /// Runs `count` if it is due and returns the last result. A count that takes longer than [`WAIT_MAX`] continues in
    /// the background.
    pub async fn current<E: Display + Send + 'static>(
        &self,
        count: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Option<Arc<T>> {
        if let Some(running) = self.begin() {
            let task = tokio::spawn(run(running, Arc::clone(&self.clock), count));
            if tokio::time::timeout(WAIT_MAX, task).await.is_err() {
                tracing::debug!("count continues in background, using previous result");
            }
        }
        self.state.lock().last.as_ref().map(|last| Arc::clone(&last.value))
    }

    fn begin(&self) -> Option<RunningCount<T>> {
        let mut state = self.state.lock();
        let is_due = state.is_due(self.clock.now());
        state.is_running |= is_due;
        is_due.then(|| RunningCount(Arc::clone(&self.state)))
    }
}

async fn run<T, E: Display>(
    running: RunningCount<T>,
    clock: Arc<dyn Clock>,
    count: impl Future<Output = Result<T, E>>,
) {
    let started_at = clock.now();
    match count.await {
        Ok(value) => {
            let last = CountResult { value: Arc::new(value), started_at, finished_at: clock.now() };
            running.0.lock().last = Some(last);
        }
        Err(error) => tracing::warn!(%error, "cannot count objects and locations, showing the last counts"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Poll;
    use std::time::Duration;

    use s3o_model::clock::{ManualClock, Timestamp};

    use super::CachedCount;

    struct CountFixture {
        clock: Arc<ManualClock>,
        counted: CachedCount<u32>,
        counts: Arc<AtomicU32>,
    }

    fn fixture() -> CountFixture {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        CountFixture { clock: clock.clone(), counted: CachedCount::new(clock), counts: Arc::default() }
    }

    impl CountFixture {
        /// Asks for a count that takes this long and returns one more each time it runs.
        async fn ask(&self, takes: Duration) -> Option<u32> {
            let (clock, counts) = (Arc::clone(&self.clock), Arc::clone(&self.counts));
            let count = async move {
                clock.advance(takes);
                Ok::<_, String>(counts.fetch_add(1, Ordering::SeqCst) + 1)
            };
            self.counted.current(count).await.map(|value| *value)
        }
    }

    #[tokio::test]
    async fn result_is_reused_for_fifty_times_the_duration_of_the_count() {
        let (fixture, takes) = (fixture(), Duration::from_secs(2));
        assert_eq!(fixture.ask(takes).await, Some(1));
        fixture.clock.advance(Duration::from_millis(99_999));
        assert_eq!(fixture.ask(takes).await, Some(1));
        fixture.clock.advance(Duration::from_millis(1));
        assert_eq!(fixture.ask(takes).await, Some(2));
        assert_eq!(fixture.ask(takes).await, Some(2));
    }

    #[tokio::test]
    async fn count_that_takes_no_time_runs_on_every_request() {
        let fixture = fixture();
        for expected in 1..5 {
            assert_eq!(fixture.ask(Duration::ZERO).await, Some(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_count_returns_the_previous_result() {
        let fixture = fixture();
        assert_eq!(fixture.ask(Duration::ZERO).await, Some(1));
        assert_eq!(fixture.counted.current(pending::<Result<u32, String>>()).await.as_deref(), Some(&1));
        assert_eq!(fixture.ask(Duration::ZERO).await, Some(1), "the slow count still runs");
    }

    #[tokio::test]
    async fn failed_or_panicked_count_runs_again() {
        let fixture = fixture();
        assert_eq!(fixture.counted.current(async { Err("away") }).await, None);
        let panics = poll_fn(|_| -> Poll<Result<u32, String>> { panic!("scripted") });
        assert_eq!(fixture.counted.current(panics).await, None);
        assert_eq!(fixture.ask(Duration::ZERO).await, Some(1));
    }
}
