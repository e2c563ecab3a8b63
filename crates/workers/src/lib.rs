//! Background work: the runner, and one file per worker.
//!
//! A worker does one bounded batch per tick and fills in a report. The runner decides everything
//! else: when to tick, how many batches one run does, what to record.

mod backend_follower;
mod budget;
mod cleanup;
mod clock_guard;
mod copy_pace;
mod copy_tasks;
mod dead_letters;
mod drain;
mod error;
mod event;
mod expiry;
mod identity;
mod lifecycle;
mod metrics;
mod over_replication;
mod pending_reaper;
mod probes;
mod quota_audit;
mod rebalancer;
mod reconciler;
mod replicator;
mod report;
mod retirement;
mod runner;
mod schedule;
mod stale_claims;
mod stale_multipart;
#[cfg(test)]
mod testing;
mod usage;
mod verify;
mod walk;
mod watchdog;
mod write_off;

pub use backend_follower::{BackendFollower, BackendObservation};
pub use budget::{BackgroundGuard, Budget, RequestGuard};
pub use cleanup::{BatchConcurrency, CleanupSettings, CleanupWorker};
pub use clock_guard::{ClockAlarm, ClockGuard, ClockGuardParts, KernelClock};
pub use copy_pace::CopyPace;
pub use copy_tasks::CopyTasks;
pub use dead_letters::{Bounds, DeadLetterService, Disposal, Disposed, Kept};
pub use drain::{DrainPass, DrainProgress, DrainWorker};
pub use error::Error;
pub use event::{BytesAt, Event};
pub use expiry::{ExpiryClaims, ExpiryWorker};
pub use identity::{
    AcceptAnswer, AcceptView, FreezeObserver, IdentityParts, IdentitySettings, IdentityWorker, InstanceView,
    RECORD_LEASE,
};
pub use lifecycle::{LifecycleWorker, Preview, PreviewTotal, RulePreview, RuleSource, Sample, SharedRules, preview};
pub use over_replication::OverReplicationWorker;
pub use pending_reaper::{PendingReaperWorker, ReaperSettings};
pub use probes::{ProbeIntervals, Prober};
pub use quota_audit::{DriftGauge, QuotaAuditWorker};
pub use rebalancer::{MoveView, RebalancePlan, RebalanceSettings, RebalancerWorker, plan_rebalance};
pub use reconciler::{
    FolderView, FoundView, KindView, PassView, ReconcileService, ReconcileSettings, ReconcilerWorker,
};
pub use replicator::{CopySettings, ReplicatorWorker};
pub use report::{Report, RunOutcome, RunReport};
pub use retirement::{DrainView, RetirementRefused, RetirementService};
pub use runner::{RunObserver, Runner, RunnerParts, Worker, WorkerView};
pub use s3o_catalog::{FindingSelection, WriteOffTotal};
pub use schedule::{Kind, Schedule, Scheduled};
pub use stale_multipart::StaleMultipartWorker;
pub use usage::{BackendUsageView, UsageFlushSettings, UsageFlushWorker, UsageLedger, UsageLedgerParts};
pub use verify::{
    BackendHeld, Checked, LostContents, Unchecked, Verifier, VerifierParts, VerifyProgress, VerifyReport, VerifyScope,
};
pub use watchdog::{WatchdogSettings, WatchdogWorker};
