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

/// Reports numbers of copies that contradict each other or the configured backends.
pub(super) fn check(root: &Section<'_>, config: &Config) {
    let ReplicationConfig { factor, write_copies, write_copies_min, .. } = config.replication;
    let section = root.section("replication");
    let backends = root.list("backends").len();
    if factor > backends {
        section.fault("factor", too_few(factor, backends));
    }
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
    for entry in root.list("buckets") {
        if let Some(factor) = entry.text("replication_factor").and_then(|text| text.parse::<usize>().ok())
            && factor > backends
        {
            entry.fault("replication_factor", too_few(factor, backends));
        }
    }
}

fn too_few(factor: usize, backends: usize) -> String {
    format!("{factor} copies need {factor} backends, but {backends} are configured: add backends or use a lower number")
}
