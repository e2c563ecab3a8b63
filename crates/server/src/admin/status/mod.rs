//! `GET /admin/api/status`: the state of the whole process.

mod schema;
mod usage;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use s3o_backend::Fleet;
use s3o_backend::fleet::CallKind;
use s3o_catalog::Catalog;
use s3o_model::names::BackendName;
use s3o_model::quota::QuotaUsage;

use super::AdminState;
use super::error::AdminError;
use super::stats::CatalogCounts;
use super::workers;
use schema::{
    BackendHealth, BackendStatus, BucketStatus, CacheStatus, CatalogStatus, CircuitStatus, ClockStatus, QueueStatus,
    StatusAnswer,
};
use usage::UsageStatus;

/// Answers with the status.
pub async fn show(State(state): State<Arc<AdminState>>) -> Result<Json<StatusAnswer>, AdminError> {
    let quotas = in_fill_order(&state.fleet, state.catalog.quota_usage().await?);
    let (queues, usages) = (queues(&state).await?, state.usage.refreshed().await?);
    let written_off = state.catalog.written_off().await?;
    let buckets = match state.catalog.buckets().await {
        // A damaged catalog lists no buckets; everything else is still shown.
        Err(_) if state.catalog.condition().is_damaged() => Vec::new(),
        found => found?,
    };
    let counts = state.stats.counts().await;
    let counts = counts.as_deref();
    Ok(Json(StatusAnswer {
        instance: state.instance.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        catalog: CatalogStatus::new(&state.catalog, state.restore_hint),
        backends: quotas
            .iter()
            .map(|quota| BackendStatus {
                usage: UsageStatus::of(&quota.backend, &usages, &state.fleet),
                ..backend(&state, quota, &written_off, counts)
            })
            .collect(),
        buckets: buckets.iter().map(|found| BucketStatus::new(found.name.as_str(), counts)).collect(),
        queues,
        cache: state.cache.as_deref().map(CacheStatus::new),
        clock: ClockStatus::new(state.clock_guard.as_deref()),
        workers: workers::sorted(&state.runner).await?,
        warnings: warnings(&state, &quotas).await?,
    }))
}

async fn warnings(state: &AdminState, quotas: &[QuotaUsage]) -> Result<Vec<String>, AdminError> {
    let mut warnings: Vec<String> = unconfigured(quotas, &state.fleet).map(|(_, warning)| warning).collect();
    let (contents, bytes) = state.catalog.lost_copies().await?;
    if contents > 0 {
        warnings.push(format!(
            "{contents} contents with {bytes} bytes are lost: no copy has the bytes that were written; `s3o verify` \
             lists them"
        ));
    }
    Ok(warnings)
}

async fn queues(state: &AdminState) -> Result<QueueStatus, AdminError> {
    let depths = state.catalog.depths().await?;
    Ok(QueueStatus {
        cleanup: depths.cleanups,
        dead_letters: depths.dead_letters,
        intents: depths.intents,
        uploads: depths.uploads,
        replication: depths.missing_copies,
        over_replication: depths.excess_copies,
        oldest_due_seconds: state.stats.oldest_due().await?.into(),
    })
}

fn backend(
    state: &AdminState,
    quota: &QuotaUsage,
    written_off: &[(BackendName, u64)],
    counts: Option<&CatalogCounts>,
) -> BackendStatus {
    let name = &quota.backend;
    let known = state.fleet.state(name).unwrap_or_default();
    BackendStatus {
        name: name.to_string(),
        used: quota.used_bytes,
        limit: quota.limit_bytes,
        orphan: quota.orphan_bytes,
        written_off: written_off.iter().find(|(found, _)| found == name).map_or(0, |(_, bytes)| *bytes),
        reserved: quota.reserved_bytes,
        objects: counts.and_then(|counts| counts.locations(name)),
        health: BackendHealth::new(state.fleet.state(name).as_deref(), state.clock.now()),
        circuit_breaker: CircuitStatus {
            reads: state.fleet.circuit(name, CallKind::Read).as_str(),
            writes: state.fleet.circuit(name, CallKind::Write).as_str(),
        },
        deletes_wait: state.identity.deletes_wait(name),
        draining: known.draining,
        unhealthy_since: known.unhealthy_since.map(|since| since.to_string()),
        usage: None,
    }
}

/// Sorts backends in the order in which writes fill them; those that are not configured come last, by name.
fn in_fill_order(fleet: &Fleet, mut quotas: Vec<QuotaUsage>) -> Vec<QuotaUsage> {
    let position = |quota: &QuotaUsage| fleet.backends().position(|backend| *backend.name() == quota.backend);
    quotas.sort_by_key(|quota| (position(quota).unwrap_or(usize::MAX), quota.backend.clone()));
    quotas
}

/// Backends that hold bytes and are not configured, each with a warning for operators.
fn unconfigured<'a>(quotas: &'a [QuotaUsage], fleet: &'a Fleet) -> impl Iterator<Item = (&'a QuotaUsage, String)> {
    let missing = quotas.iter().filter(|quota| fleet.get(&quota.backend).is_none());
    let holding = missing.filter(|quota| quota.used_bytes + quota.orphan_bytes + quota.reserved_bytes > 0);
    holding.map(|quota| {
        let warning = format!(
            "backend {} holds {} bytes of objects and is not configured: configure it again to read them",
            quota.backend, quota.used_bytes
        );
        (quota, warning)
    })
}

/// Logs a warning for each backend that holds bytes and is not configured.
pub async fn warn_unconfigured_backends(catalog: &Catalog, fleet: &Fleet) {
    match catalog.quota_usage().await {
        Ok(quotas) => {
            for (quota, _) in unconfigured(&quotas, fleet) {
                let (backend, used_bytes) = (&quota.backend, quota.used_bytes);
                tracing::warn!(%backend, used_bytes, "backend holds objects and is not configured, configure it again");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot read which backends hold objects"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use s3o_backend::{Backend as _, Fleet, Memory};
    use s3o_model::clock::Timestamp;
    use s3o_model::names::BackendName;

    use super::schema::{BackendHealth, HealthState};

    pub const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    pub fn two_backends() -> (Fleet, Vec<BackendName>) {
        let memory = |name: &str| Arc::new(Memory::new(name.parse().expect("valid")));
        let backends = [memory("a"), memory("b")];
        let names = backends.iter().map(|backend| backend.name().clone()).collect();
        (Fleet::new(backends.map(|backend| backend as _).to_vec()).expect("two names"), names)
    }

    pub fn fail_probes(fleet: &Fleet, name: &BackendName, times: usize) {
        for _ in 0..times {
            fleet.record_probe(name, Err("no route".to_owned()), NOW);
        }
    }

    fn health(fleet: &Fleet, name: &BackendName) -> BackendHealth {
        BackendHealth::new(fleet.state(name).as_deref(), NOW)
    }

    #[test]
    fn status_shows_since_when_and_why_a_backend_is_away() {
        let (fleet, names) = two_backends();
        fail_probes(&fleet, &names[0], 2);
        let shown = health(&fleet, &names[0]);
        assert_eq!((shown.health, shown.error.as_deref()), (HealthState::Away, Some("no route")));
        assert_eq!(shown.since, Some(NOW.to_string()));
        fleet.record_no_space(&names[1], 10, NOW);
        let shown = health(&fleet, &names[1]);
        assert_eq!((shown.health, shown.full_from), (HealthState::Full, Some(10)));
    }
}
