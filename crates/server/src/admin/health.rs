//! Health checks for load balancers, as plain text.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use s3o_backend::Fleet;
use s3o_backend::fleet::Health;
use s3o_catalog::Integrity;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

use super::AdminState;

/// The server is not ready once every backend has been away for this long.
const AWAY_MAX: Duration = Duration::from_secs(30);

/// `GET /health/live`: the process answers.
pub async fn live() -> &'static str {
    "ok"
}

/// `GET /health/ready`. The first line says whether the server is ready; each further line names something that is
/// unavailable, without its cause, because no token is needed.
pub async fn ready(State(state): State<Arc<AdminState>>) -> (StatusCode, String) {
    let catalog = match state.catalog.condition().integrity() {
        damaged @ Integrity::Damaged(_) => Some(damaged.as_str()),
        Integrity::Sound | Integrity::Checking | Integrity::Doubtful(_) => {
            state.catalog.quota_usage().await.is_err().then_some("unavailable")
        }
    };
    let report = readiness(&state.fleet, catalog, state.clock.now());
    let (status, word) =
        if report.is_ready { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready") };
    let lines: Vec<&str> = std::iter::once(word).chain(report.unavailable.iter().map(String::as_str)).collect();
    (status, lines.join("\n"))
}

struct ReadyReport {
    is_ready: bool,
    /// Such as `backend disk: away`.
    unavailable: Vec<String>,
}

/// Ready means that the catalog answers and is not damaged, and that a backend was readable within [`AWAY_MAX`]. Only
/// requests that need a backend which is away fail. `catalog` is what is wrong with the catalog.
fn readiness(fleet: &Fleet, catalog: Option<&str>, now: Timestamp) -> ReadyReport {
    let backends = fleet.health(now);
    let is_unreadable = |(_, health): &(BackendName, Health)| match health {
        Health::Away(outage) => now.since(outage.since) >= AWAY_MAX,
        Health::Ok | Health::Frozen(_) | Health::Full { .. } => false,
    };
    let is_ready = catalog.is_none() && !backends.iter().all(is_unreadable);
    let catalog = catalog.map(|word| format!("catalog: {word}"));
    let impaired = backends.iter().filter(|(_, health)| *health != Health::Ok);
    let impaired = impaired.map(|(name, health)| format!("backend {name}: {}", health.as_str()));
    ReadyReport { is_ready, unavailable: catalog.into_iter().chain(impaired).collect() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::status::tests::{NOW, fail_probes, two_backends};
    use super::readiness;

    #[test]
    fn not_ready_once_no_backend_was_readable_for_half_a_minute() {
        let (fleet, names) = two_backends();
        let late = NOW.after(Duration::from_secs(30));
        assert_eq!(readiness(&fleet, None, late).unavailable, Vec::<String>::new());
        fail_probes(&fleet, &names[0], 2);
        let report = readiness(&fleet, None, late);
        assert_eq!((report.is_ready, report.unavailable), (true, vec!["backend a: away".to_owned()]));
        fail_probes(&fleet, &names[1], 1);
        assert!(readiness(&fleet, None, late).is_ready, "one failure is not an outage");
        fail_probes(&fleet, &names[1], 1);
        assert!(readiness(&fleet, None, NOW.after(Duration::from_secs(29))).is_ready);
        assert!(!readiness(&fleet, None, late).is_ready);
        fleet.record_probe(&names[0], Ok(()), late);
        assert!(readiness(&fleet, None, late).is_ready);
        assert_eq!(readiness(&fleet, Some("unavailable"), late).unavailable[0], "catalog: unavailable");
        assert!(!readiness(&fleet, Some("unavailable"), late).is_ready);
    }
}
