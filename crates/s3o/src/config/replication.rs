//! Section `replication`: how many copies each object has, and the workers that keep that number.

use std::time::Duration;

use super::read::Section;
use super::{Config, ReplicationConfig};

const INTERVAL: Duration = Duration::from_mins(5);
/// Copies of a backend that fails for this long are written elsewhere.
const UNHEALTHY_AFTER: Duration = Duration::from_mins(10);
/// Zero would replace the copies of a backend at its first failure.
const UNHEALTHY_MIN: Duration = Duration::from_millis(1);
/// Largest number of items in one tick.
const BATCH_MAX: usize = 1000;
/// No operator has more stores; a larger number is a mistake.
const COPIES_MAX: usize = 100;

pub(super) fn replication(section: Section<'_>) -> ReplicationConfig {
    let replication = ReplicationConfig {
        factor: section.count_up_to("factor", 1, COPIES_MAX),
        write_copies: section.count_up_to("write_copies", 1, COPIES_MAX),
        write_copies_min: section.count_up_to("write_copies_min", 1, COPIES_MAX),
        interval: section.duration("interval", INTERVAL),
        over_replication_interval: section.duration("over_replication_interval", INTERVAL),
        batch_size: section.count_up_to("batch_size", 1000, BATCH_MAX),
        concurrency: section.count("concurrency", 8),
        unhealthy_after: section.duration_within("unhealthy_after", UNHEALTHY_AFTER, UNHEALTHY_MIN.., "1ms or more"),
    };
    section.finish();
    replication
}

/// Reports numbers of copies that contradict each other.
pub(super) fn check(root: &Section<'_>, config: &Config) {
    let ReplicationConfig { factor, write_copies, write_copies_min, .. } = config.replication;
    let section = root.section("replication");
    if write_copies > factor {
        section.fault("write_copies", format!("{write_copies} is more than replication.factor, use at most {factor}"));
    }
    if write_copies_min > write_copies {
        section.fault(
            "write_copies_min",
            format!("{write_copies_min} is more than write_copies, use at most {write_copies}"),
        );
    }
    if write_copies > 1 && !config.intents.enabled {
        section.fault("write_copies", format!("{write_copies} copies need write_path.pending_intents.enabled: true"));
    }
}

/// Factors above the number of configured backends. They are no faults: after backends were removed, the server must
/// still start.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let backends = config.backends.len();
    let default = ("replication.factor".to_owned(), config.replication.factor);
    let of_bucket = |name| (format!("buckets {name}: replication_factor"), config.buckets.of(name).factor);
    let of_buckets = config.buckets.names().map(of_bucket).filter(|(_, factor)| *factor != config.replication.factor);
    let factors = std::iter::once(default).chain(of_buckets);
    factors
        .filter(|(_, factor)| *factor > backends)
        .map(|(path, factor)| {
            format!(
                "{path}: {factor} copies need {factor} backends, but {backends} are configured, so that copies are \
                 missing; add backends or use a lower number"
            )
        })
        .collect()
}
