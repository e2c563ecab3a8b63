//! Numbers that cost a look at every row: the more a count cost, the longer it stands.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::{Clock, Timestamp};

/// A count stands for this many times as long as it took: counting costs at most a fiftieth of the time.
const REST_FACTOR: u32 = 50;
/// How long whoever asks waits for a count under way before the last one is told.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Something that is counted again when it is asked for, but not too often.
pub struct Counted<T> {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State<T>>>,
}

struct State<T> {
    last: Option<Count<T>>,
    under_way: bool,
}

struct Count<T> {
    value: Arc<T>,
    began_at: Timestamp,
    ended_at: Timestamp,
}

impl<T> State<T> {
    fn is_due(&self, now: Timestamp) -> bool {
        let Some(last) = self.last.as_ref().filter(|_| !self.under_way) else { return !self.under_way };
        // A clock that was set back must not keep a count for ever.
        let rest = last.ended_at.since(last.began_at) * REST_FACTOR;
        now < last.ended_at || now.since(last.ended_at) >= rest
    }
}

/// A count under way; however it ends, the next may begin.
struct UnderWay<T>(Arc<Mutex<State<T>>>);

impl<T> Drop for UnderWay<T> {
    fn drop(&mut self) {
        locked(&self.0).under_way = false;
    }
}

fn locked<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock()
}

impl<T: Send + Sync + 'static> Counted<T> {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::new(Mutex::new(State { last: None, under_way: false })) }
    }

    /// The last count, after counting again if that is due. A count that takes long goes on without
    /// whoever asked for it.
    pub async fn current<E: Display + Send + 'static>(
        &self,
        count: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Option<Arc<T>> {
        if let Some(under_way) = self.begin() {
            let counting = tokio::spawn(run(under_way, Arc::clone(&self.clock), count));
            if tokio::time::timeout(WAIT_MAX, counting).await.is_err() {
                tracing::debug!("a count takes long, the last one is told meanwhile");
            }
        }
        locked(&self.state).last.as_ref().map(|last| Arc::clone(&last.value))
    }

    fn begin(&self) -> Option<UnderWay<T>> {
        let mut state = locked(&self.state);
        let due = state.is_due(self.clock.now());
        state.under_way |= due;
        due.then(|| UnderWay(Arc::clone(&self.state)))
    }
}

async fn run<T, E: Display>(under_way: UnderWay<T>, clock: Arc<dyn Clock>, count: impl Future<Output = Result<T, E>>) {
    let began_at = clock.now();
    match count.await {
        Ok(value) => {
            let last = Count { value: Arc::new(value), began_at, ended_at: clock.now() };
            locked(&under_way.0).last = Some(last);
        }
        Err(error) => tracing::warn!(%error, "not counted"),
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

    use super::Counted;

    struct Scene {
        clock: Arc<ManualClock>,
        counted: Counted<u32>,
        counts: Arc<AtomicU32>,
    }

    fn scene() -> Scene {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        Scene { clock: clock.clone(), counted: Counted::new(clock), counts: Arc::default() }
    }

    impl Scene {
        /// Asks for a number that takes so long to count and is one higher each time.
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
    async fn a_count_stands_for_fifty_times_as_long_as_it_took() {
        let (scene, takes) = (scene(), Duration::from_secs(2));
        assert_eq!(scene.ask(takes).await, Some(1));
        scene.clock.advance(Duration::from_millis(99_999));
        assert_eq!(scene.ask(takes).await, Some(1));
        scene.clock.advance(Duration::from_millis(1));
        assert_eq!(scene.ask(takes).await, Some(2));
        assert_eq!(scene.ask(takes).await, Some(2));
    }

    #[tokio::test]
    async fn what_costs_nothing_is_always_counted() {
        let scene = scene();
        for expected in 1..5 {
            assert_eq!(scene.ask(Duration::ZERO).await, Some(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_that_takes_long_keeps_nobody_waiting() {
        let scene = scene();
        assert_eq!(scene.ask(Duration::ZERO).await, Some(1));
        assert_eq!(scene.counted.current(pending::<Result<u32, String>>()).await.as_deref(), Some(&1));
        assert_eq!(scene.ask(Duration::ZERO).await, Some(1), "one is under way");
    }

    #[tokio::test]
    async fn a_count_that_fails_or_panics_is_tried_again() {
        let scene = scene();
        assert_eq!(scene.counted.current(async { Err("away") }).await, None);
        let panics = poll_fn(|_| -> Poll<Result<u32, String>> { panic!("scripted") });
        assert_eq!(scene.counted.current(panics).await, None);
        assert_eq!(scene.ask(Duration::ZERO).await, Some(1));
    }
}
