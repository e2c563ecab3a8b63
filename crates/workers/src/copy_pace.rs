//! The pace of the workers that write copies: without requests they use all of their concurrency, and while requests
//! arrive they leave the processors and the stores to them for most of the time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::budget::Budget;
use crate::schedule::pause_for_requests;

/// Slows copies down while requests arrive. Clones share the requests.
#[derive(Debug, Clone)]
pub struct CopyPace(Arc<Budget>);

impl CopyPace {
    /// A pace by the requests that this budget counts.
    #[must_use]
    pub fn new(budget: Arc<Budget>) -> Self {
        Self(budget)
    }

    /// Writes one copy. If requests arrived meanwhile, the pause after it is several times as long as the copy took, so
    /// that all concurrent copies together cost about as much as one that is written without a pause.
    pub(crate) async fn write<T>(&self, copy: impl Future<Output = T>) -> T {
        let (began, requests) = (Instant::now(), self.0.requests_begun());
        let written = copy.await;
        let pause = pause_for_requests(began.elapsed(), self.0.requests_begun() - requests, Duration::ZERO);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::CopyPace;
    use crate::budget::Budget;

    const TOOK: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn copies_follow_each_other_at_once_without_requests() {
        let began = Instant::now();
        let pace = CopyPace::new(Budget::new(9));
        pace.write(sleep(TOOK)).await;
        assert_eq!(began.elapsed(), TOOK);
    }

    #[tokio::test(start_paused = true)]
    async fn pause_after_a_copy_is_a_multiple_of_its_duration_while_requests_arrive() {
        let (budget, began) = (Budget::new(9), Instant::now());
        let pace = CopyPace::new(budget.clone());
        let copy = async {
            drop(budget.request());
            sleep(TOOK).await;
        };
        pace.write(copy).await;
        assert_eq!(began.elapsed(), TOOK * 7);
    }
}
