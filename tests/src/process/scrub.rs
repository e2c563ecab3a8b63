//! The scrubber of one process.

use std::sync::Arc;
use std::time::Duration;

use s3o_model::scrub::ScrubPace;
use s3o_workers::{Budget, CopyPace, ScrubProgress, ScrubSettings, ScrubberWorker};

use super::parts::ProcessParts;

/// Every pass reads everything, in small pages.
pub const SCRUB: ScrubSettings = ScrubSettings {
    pace: ScrubPace { cycle: Duration::from_hours(6), interval: Duration::from_hours(6) },
    batch_size: 4,
    slice_bytes: 1 << 20,
    tick_time: Duration::from_mins(1),
};

impl ProcessParts {
    pub(super) fn scrubber(&self, settings: ScrubSettings) -> ScrubberWorker {
        ScrubberWorker {
            catalog: self.catalog.clone(),
            engine: self.engine(),
            fleet: self.fleet.clone(),
            settings,
            pace: CopyPace::new(Budget::new(1)),
            progress: ScrubProgress::default(),
            replicator_wakeup: Arc::default(),
        }
    }
}
