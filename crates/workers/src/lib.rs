//! What happens by itself: the runner, and one file per worker.
//!
//! A worker does one bounded batch per tick and returns a report. The runner owns everything
//! else: when to tick, how long to go on, what to record.

mod budget;
mod cleanup;
mod clock_guard;
mod dead_letters;
mod error;
mod event;
mod expiry;
mod identity;
mod lifecycle;
mod metrics;
mod pending_reaper;
mod probes;
mod quota_audit;
mod report;
mod runner;
mod schedule;
mod stale_claims;
mod stale_multipart;
#[cfg(test)]
mod testing;
mod verify;
mod watchdog;

pub use budget::{BackgroundGuard, Budget, RequestGuard};
pub use cleanup::{Cleanup, CleanupSettings, Pace};
pub use clock_guard::{ClockAlarm, ClockGuard, ClockGuardParts, KernelClock};
pub use dead_letters::{Bounds, DeadLetterOffice, Disposal, Disposed, Kept};
pub use error::Error;
pub use event::{BytesAt, Event};
pub use expiry::{Expiry, ExpiryClaims};
pub use identity::{
    AcceptAnswer, AcceptView, Alarm, Identity, IdentityParts, IdentitySettings, InstanceView, RECORD_LEASE,
};
pub use lifecycle::{Lifecycle, Preview, PreviewTotal, RulePreview, RuleSource, Sample, SharedRules, preview};
pub use pending_reaper::{PendingReaper, ReaperSettings};
pub use probes::{ProbeIntervals, Prober};
pub use quota_audit::{DriftGauge, QuotaAudit};
pub use report::{Outcome, Report, RunReport};
pub use runner::{RunObserver, Runner, RunnerParts, Worker, WorkerView};
pub use s3o_catalog::FindingSelection;
pub use schedule::{Kind, Schedule, Scheduled};
pub use stale_multipart::StaleMultipart;
pub use verify::{BackendHeld, Checked, Unchecked, Verifier, VerifierParts, VerifyProgress, VerifyReport, VerifyScope};
pub use watchdog::{Watchdog, WatchdogSettings};
