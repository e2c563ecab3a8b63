//! The cache: memory first, then the tier that instances share, then whoever has the bytes; and of
//! many readers who miss at once only one goes there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::ids::ContentId;
use s3o_model::keeping::time_to_keep;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::errands::Errands;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::single_flight::{Flights, Landing, Seat};
use crate::tier::{Entry, Tier, TierError};

/// Which share of the memory the bodies that are being fetched may take on top of it, and those
/// that wait to be shared once more.
const IN_FLIGHT_SHARE: u64 = 8;

/// How often at most entries are looked through for those that have had their time.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// What is kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// What the memory may take.
    pub max_bytes: u64,
    /// The largest body that is kept.
    pub object_bytes_max: u64,
    /// The longest time that a body is kept.
    pub ttl: Duration,
}

/// What a cache is made of.
pub struct Parts {
    /// What is kept, and for how long.
    pub settings: Settings,
    /// The tier that instances share, where there is one.
    pub shared: Option<Arc<dyn Tier>>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// A body that somebody wants.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Whose body it is, as the catalog says at this moment.
    pub content: ContentId,
    /// How long it is.
    pub size_bytes: u64,
    /// When the object that is being read ceases to exist.
    pub expires_at: Option<Timestamp>,
}

/// What the cache holds and has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Bodies in memory.
    pub entries: u64,
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub max_bytes: u64,
    /// Reads that memory answered, alone or by what another reader fetched.
    pub hits: u64,
    /// Reads that it did not.
    pub misses: u64,
    /// Reads that the shared tier answered.
    pub shared_hits: u64,
    /// Whether the shared tier is within reach, where there is one.
    pub shared_reachable: Option<bool>,
}

struct Shared {
    tier: Arc<dyn Tier>,
    errands: Errands,
}

/// Keeps small bodies at hand.
pub struct Cache {
    memory: Memory,
    shared: Option<Shared>,
    flights: Flights,
    /// Bytes that may be on their way into memory at a time.
    room: Semaphore,
    settings: Settings,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
}

impl Cache {
    /// A cache of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { settings, shared, clock } = parts;
        let metrics = Metrics::default();
        let room_bytes = (settings.max_bytes / IN_FLIGHT_SHARE).max(settings.object_bytes_max);
        let shared =
            shared.map(|tier| Shared { errands: Errands::to(Arc::clone(&tier), room_bytes, metrics.clone()), tier });
        Self {
            memory: Memory::new(settings.max_bytes, settings.object_bytes_max, Arc::clone(&clock)),
            shared,
            flights: Flights::default(),
            room: Semaphore::new(usize::try_from(room_bytes).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)),
            settings,
            clock,
            metrics,
        }
    }

    /// Shows the counters to whoever reads the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let shared: Vec<&'static str> = self.shared.iter().map(|shared| shared.tier.name()).collect();
        self.metrics.register(registry, &shared);
    }

    /// Whether bodies of this length are kept. An empty one needs no reading.
    #[must_use]
    pub fn takes(&self, size_bytes: u64) -> bool {
        (1..=self.settings.object_bytes_max).contains(&size_bytes)
    }

    /// The body, from wherever it is at hand. Otherwise `load` fetches it, whole and verified, for
    /// everybody who wants it now. `None`: so much is being fetched already that this one has to be
    /// read past the cache.
    pub async fn body<E, L>(&self, wanted: &Wanted, load: impl Fn() -> L) -> Result<Option<Bytes>, E>
    where
        L: Future<Output = Result<Bytes, E>>,
    {
        if let Some(body) = self.memory.find(wanted.content) {
            self.metrics.asked("memory", "hit");
            return Ok(Some(body));
        }
        loop {
            let follower = match self.flights.join(wanted.content) {
                Seat::Follower(follower) => follower,
                Seat::Leader(leader) => {
                    let fetched = self.fetch(wanted, &load).await;
                    let body = fetched.as_ref().ok().and_then(Option::clone);
                    leader.land(body.map_or(Landing::Nothing, Landing::Body));
                    return fetched;
                }
            };
            match follower.landing().await {
                Some(Landing::Body(body)) => {
                    self.metrics.asked("memory", "shared");
                    return Ok(Some(body));
                }
                Some(Landing::Nothing) => return self.fetch(wanted, &load).await,
                None => {}
            }
        }
    }

    /// Fetches a body that is not in memory, and keeps it.
    async fn fetch<E, L>(&self, wanted: &Wanted, load: &impl Fn() -> L) -> Result<Option<Bytes>, E>
    where
        L: Future<Output = Result<Bytes, E>>,
    {
        // The flight before this one may have landed in between.
        if let Some(body) = self.memory.find(wanted.content) {
            self.metrics.asked("memory", "hit");
            return Ok(Some(body));
        }
        let Some(_room) = self.room_for(wanted.size_bytes) else {
            self.metrics.asked("memory", "bypass");
            return Ok(None);
        };
        self.metrics.asked("memory", "miss");
        if let Some(body) = self.ask_shared(wanted).await {
            self.keep_in_memory(wanted, &body);
            return Ok(Some(body));
        }
        let body = load().await?;
        if let Some(time) = self.keep_in_memory(wanted, &body)
            && let Some(shared) = &self.shared
        {
            shared.errands.keep(Entry { content: wanted.content, body: body.clone(), time });
        }
        Ok(Some(body))
    }

    fn room_for(&self, size_bytes: u64) -> Option<SemaphorePermit<'_>> {
        self.room.try_acquire_many(u32::try_from(size_bytes).ok()?).ok()
    }

    fn keep_in_memory(&self, wanted: &Wanted, body: &Bytes) -> Option<Duration> {
        let time = time_to_keep(self.settings.ttl, wanted.expires_at, self.clock.now())?;
        self.memory.put(wanted.content, body.clone(), time);
        Some(time)
    }

    /// Whatever is wrong with the shared tier, the body is read as if there were none.
    async fn ask_shared(&self, wanted: &Wanted) -> Option<Bytes> {
        let tier = &self.shared.as_ref()?.tier;
        let answer = tier.get(wanted.content, wanted.size_bytes).await;
        let outcome = match &answer {
            Ok(Some(_)) => "hit",
            Ok(None) => "miss",
            Err(TierError::NotAsked) => "skipped",
            Err(TierError::Away(_)) => "error",
            Err(TierError::Wrong(why)) => {
                tracing::warn!(tier = tier.name(), content = %wanted.content, why, "a body in the cache is wrong");
                "corrupt"
            }
        };
        self.metrics.asked(tier.name(), outcome);
        answer.ok().flatten()
    }

    /// Forgets contents that nothing refers to any more. Memory forgets at once, the shared tier
    /// is told beside everything else.
    pub fn forget(&self, contents: &[ContentId]) {
        self.memory.drop_all(contents);
        self.metrics.forgot("memory", "ok", contents.len());
        if let Some(shared) = &self.shared {
            shared.errands.forget(contents);
        }
    }

    /// Drops what has had its time, keeps the shared tier within reach and tells it what it is to
    /// know, for as long as it is polled.
    pub async fn upkeep(&self) {
        match &self.shared {
            Some(shared) => {
                tokio::join!(self.sweep(), shared.tier.stay_reachable(), shared.errands.run());
            }
            None => self.sweep().await,
        }
    }

    async fn sweep(&self) {
        loop {
            tokio::time::sleep(self.settings.ttl.max(SWEEP_INTERVAL_MIN)).await;
            self.memory.sweep();
        }
    }

    /// What it holds and has answered.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let asked = |outcome| self.metrics.count("memory", outcome);
        let shared = self.shared.as_ref().map(|shared| &shared.tier);
        Standing {
            entries: self.memory.entries() as u64,
            bytes: self.memory.bytes(),
            max_bytes: self.settings.max_bytes,
            hits: asked("hit") + asked("shared"),
            misses: asked("miss") + asked("bypass"),
            shared_hits: shared.map_or(0, |tier| self.metrics.count(tier.name(), "hit")),
            shared_reachable: shared.map(|tier| tier.is_reachable()),
        }
    }
}

#[cfg(test)]
mod tests;
