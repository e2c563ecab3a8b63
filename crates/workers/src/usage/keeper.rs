//! Keeps the ceilings of this process while requests count towards them, and exchanges totals through Redis.

use std::time::Duration;

use s3o_cache::RedisUsage;

use super::UsageLedger;

/// Shortest time between two attempts to obtain ceilings, and interval of the exchange through Redis.
const INTERVAL: Duration = Duration::from_secs(1);

impl UsageLedger {
    /// Obtains ceilings when they are needed and exchanges totals every second; it does not return. No request waits
    /// for either.
    pub async fn run_renewals(&self) {
        tokio::join!(self.renew_ceilings(), self.exchange_totals());
    }

    async fn renew_ceilings(&self) {
        let (mut woken_at, mut has_failed) = (self.parts.time.since_boot(), false);
        let mut flushed_at = woken_at;
        loop {
            tokio::select! {
                () = self.parts.demand.notified() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
            self.wake_flush(&mut woken_at);
            self.flush_beside_lock(&mut flushed_at).await;
            if !self.needs_ceilings() {
                continue;
            }
            let obtained = self.allot().await;
            if let (Err(error), false) = (&obtained, has_failed) {
                tracing::warn!(%error, "cannot obtain usage ceilings, retrying");
            }
            has_failed = obtained.is_err();
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// True if a backend was used up to half of its share, or if a lease ends soon because `usage_flush` did not run.
    fn needs_ceilings(&self) -> bool {
        self.limited().any(|usage| usage.is_demanded()) || self.lease_left() < self.parts.settings.current().lease() / 4
    }

    /// Wakes `usage_flush` early while a backend is near a limit.
    fn wake_flush(&self, woken_at: &mut Duration) {
        let (settings, now) = (self.parts.settings.current(), self.parts.time.since_boot());
        let is_due = settings.fast_interval.is_some_and(|fast| now.saturating_sub(*woken_at) >= fast);
        if is_due && self.limited().any(|usage| usage.is_near_limit()) {
            *woken_at = now;
            self.parts.flush_wakeup.notify_one();
        }
    }

    /// With Redis, the instance that holds the lock of `usage_flush` records the totals of all others. Meanwhile this
    /// instance keeps its ceilings, and records its own totals if Redis is unavailable.
    async fn flush_beside_lock(&self, flushed_at: &mut Duration) {
        let is_needed = self.parts.redis.is_some() && (self.is_limited() || !self.is_exchanging());
        let now = self.parts.time.since_boot();
        if !is_needed || now.saturating_sub(*flushed_at) < self.current_interval() {
            return;
        }
        *flushed_at = now;
        if let Err(error) = self.flush_unlocked().await {
            tracing::warn!(%error, "cannot record usage, retrying");
        }
    }

    /// The interval of the flush at the current usage.
    fn current_interval(&self) -> Duration {
        let settings = self.parts.settings.current();
        let is_near = self.limited().any(|usage| usage.is_near_limit());
        settings.fast_interval.filter(|_| is_near).unwrap_or(settings.interval)
    }

    async fn exchange_totals(&self) {
        if let Some(redis) = &self.parts.redis {
            tokio::join!(redis.stay_reachable(), self.exchange_regularly(redis));
        }
    }

    async fn exchange_regularly(&self, redis: &RedisUsage) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.exchange(redis).await;
        }
    }
}
