//! Settings of the write path and of the workers.

use std::time::Duration;

use s3o_model::backoff::Backoff;
use s3o_model::circuit::CircuitSettings;
use s3o_model::cleanup::Retries;
use s3o_model::lifecycle::{ConfiguredRule, InvalidRule};
use s3o_model::names::BucketName;
use s3o_model::recovery::Recovery;

use super::read::Section;
use super::sections::flag;
use super::{CleanupQueue, IntentsConfig, MaintenanceConfig, units};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// A writer renews its lease after a third of it; a shorter lease would expire during a write.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// Zero would end every wait before it began, and abort uploads in progress.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// Largest number of items in one unit of the catalog.
const BATCH_MAX: usize = 1000;
/// More failures in a row would never be reached.
const FAILURES_MAX: usize = 1_000_000;

/// Section `lifecycle`.
#[derive(Debug, Clone)]
pub struct LifecycleConfig {
    /// Interval of the worker.
    pub interval: Duration,
    /// Configured rules; buckets may have more, set through the S3 API.
    pub rules: Vec<ConfiguredRule>,
}

/// Settings of the deletion of expired objects.
#[derive(Debug, Clone, Copy)]
pub struct ExpiryConfig {
    /// Interval of the worker.
    pub interval: Duration,
    /// Number of objects per claim.
    pub batch_size: usize,
    /// Age at which an unfinished deletion is started again.
    pub stuck_after: Duration,
}

pub(super) fn intents(write_path: Section<'_>) -> IntentsConfig {
    let section = write_path.section("pending_intents");
    let intents = IntentsConfig {
        enabled: section.read("enabled", flag).unwrap_or(true),
        recovery: section.read("recovery", recovery).unwrap_or(Recovery::Promote),
        concurrency: section.count("concurrency", 8),
        min_age: section.duration_within("min_age", 5 * MINUTE, LEASE_MIN.., "100ms or more"),
        reaper_tick: section.duration("reaper_tick", MINUTE),
        batch_size: section.count_up_to("batch_size", 100, BATCH_MAX),
        late_write_window: section.duration("late_write_window", HOUR),
    };
    section.finish();
    write_path.finish();
    intents
}

fn recovery(text: &str) -> Result<Recovery, String> {
    match text {
        "promote" => Ok(Recovery::Promote),
        "rollback" => Ok(Recovery::Rollback),
        other => Err(format!("{other:?} is not one of promote, rollback")),
    }
}

/// Section `circuit_breaker`.
#[derive(Debug, Clone, Copy)]
pub struct CircuitBreakerConfig {
    pub circuit: CircuitSettings,
    /// How long a read waits for the first byte of a copy while there is another one.
    pub first_byte_timeout: Duration,
}

pub(super) fn circuit_breaker(section: Section<'_>) -> CircuitBreakerConfig {
    let default = CircuitSettings::default();
    let threshold = section.count_up_to("failure_threshold", default.failure_threshold as usize, FAILURES_MAX);
    let above_zero = |field, default| section.duration_within(field, default, TIMEOUT_MIN.., "1ms or more");
    let breaker = CircuitBreakerConfig {
        circuit: CircuitSettings {
            failure_threshold: u32::try_from(threshold).unwrap_or(u32::MAX),
            open_timeout: above_zero("open_timeout", default.open_timeout),
            probe_timeout: above_zero("probe_timeout", default.probe_timeout),
        },
        first_byte_timeout: above_zero("first_byte_timeout", Duration::from_secs(2)),
    };
    section.finish();
    breaker
}

pub(super) fn cleanup(section: Section<'_>) -> CleanupQueue {
    let cleanup = CleanupQueue {
        interval: section.duration("interval", MINUTE),
        batch_size: section.count_up_to("batch_size", 1000, BATCH_MAX),
        concurrency: section.count("concurrency", 8),
        claim_grace_period: section.duration("claim_grace_period", 5 * MINUTE),
        retries: Retries {
            backoff: Backoff {
                min: section.duration("backoff_min", MINUTE),
                max: section.duration("backoff_max", 24 * HOUR),
            },
            max_attempts: u32::try_from(section.count("max_attempts", 10)).unwrap_or(u32::MAX),
        },
        reader_grace: section.duration("reader_grace", MINUTE),
        multipart_stale_timeout: section.duration_within(
            "multipart_stale_timeout",
            24 * HOUR,
            TIMEOUT_MIN..,
            "1ms or more",
        ),
    };
    let Backoff { min, max } = cleanup.retries.backoff;
    if min > max {
        section.fault("backoff_min", format!("{min:?} is longer than backoff_max, use at most {max:?}"));
    }
    section.finish();
    cleanup
}

pub(super) fn lifecycle(section: Section<'_>) -> LifecycleConfig {
    let rules = section.list("rules").into_iter().enumerate();
    let lifecycle = LifecycleConfig {
        interval: section.duration("interval", HOUR),
        rules: rules.filter_map(|(position, rule)| lifecycle_rule(position, rule)).collect(),
    };
    section.finish();
    lifecycle
}

fn lifecycle_rule(position: usize, section: Section<'_>) -> Option<ConfiguredRule> {
    let message = |error: InvalidRule| error.to_string();
    let bucket = section.required("bucket", |text| text.parse::<BucketName>().map_err(|error| error.to_string()));
    let prefix = section.required("prefix", |text| ConfiguredRule::prefix(text).map_err(message));
    let days = section.required("expiration_days", |text| ConfiguredRule::days(text).map_err(message));
    section.finish();
    Some(ConfiguredRule::new(position, bucket?, prefix?, days?))
}

pub(super) fn expiry(section: Section<'_>) -> ExpiryConfig {
    let expiry = ExpiryConfig {
        interval: section.duration("interval", MINUTE),
        batch_size: section.count_up_to("batch_size", 1000, BATCH_MAX),
        stuck_after: section.duration("stuck_after", 2 * HOUR),
    };
    section.finish();
    expiry
}

pub(super) fn maintenance(root: &Section<'_>) -> MaintenanceConfig {
    let identity = root.section("identity");
    let maintenance = MaintenanceConfig {
        stale_multipart: interval(root.section("stale_multipart"), HOUR),
        quota_audit: interval(root.section("quota_audit"), HOUR),
        watchdog: interval(root.section("watchdog"), MINUTE),
        identity: identity.duration("interval", HOUR),
        probe_interval: identity.read("probe_interval", units::duration),
        delete_delay: identity.read("delete_delay", units::duration),
    };
    identity.finish();
    maintenance
}

/// The section of a worker whose only setting is its interval.
fn interval(section: Section<'_>, default: Duration) -> Duration {
    let interval = section.duration("interval", default);
    section.finish();
    interval
}
