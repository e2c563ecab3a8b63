//! Health of the backends as the admin API reports it.

use std::time::Duration;

use s3o_backend::Fleet;
use s3o_backend::fleet::Health;
use s3o_catalog::{Catalog, Quotas as _};
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use s3o_model::quota::Books;
use s3o_server::admin::{BackendStatus, Health as Shown, ReadyReport};

/// After so long without a readable backend the server is not ready.
const UNREADABLE_MAX: Duration = Duration::from_secs(30);

/// The health fields of a backend's status; the others keep their defaults.
pub fn of(fleet: &Fleet, name: &BackendName, now: Timestamp) -> BackendStatus {
    let Some(standing) = fleet.standing(name) else {
        let frozen = Some("not configured".to_owned());
        return BackendStatus { health: Shown::Frozen, frozen, ..BackendStatus::default() };
    };
    let status = BackendStatus { frozen: standing.frozen.clone(), ..BackendStatus::default() };
    match standing.health(now) {
        Health::Ok => status,
        Health::Away(outage) => {
            let (since, error) = (Some(outage.since.to_string()), Some(outage.error));
            BackendStatus { health: Shown::Away, since, error, ..status }
        }
        Health::Frozen(_) => BackendStatus { health: Shown::Frozen, ..status },
        Health::Full { from_bytes } => BackendStatus { health: Shown::Full, full_from: Some(from_bytes), ..status },
    }
}

/// Whether requests can be served, and what is unavailable; `catalog` is what is wrong with the catalog.
pub fn readiness(fleet: &Fleet, catalog: Option<&str>, now: Timestamp) -> ReadyReport {
    let backends = fleet.health(now);
    let unreadable = |(_, health): &(BackendName, Health)| match health {
        Health::Away(outage) => now.since(outage.since) >= UNREADABLE_MAX,
        Health::Ok | Health::Frozen(_) | Health::Full { .. } => false,
    };
    let readable = !backends.iter().all(unreadable);
    let away = catalog.map(|word| format!("catalog: {word}"));
    let lacking = backends.iter().filter(|(_, health)| *health != Health::Ok);
    let lacking = lacking.map(|(name, health)| format!("backend {name}: {}", health.as_str()));
    ReadyReport { ready: catalog.is_none() && readable, unavailable: away.into_iter().chain(lacking).collect() }
}

/// Backends that hold bytes and are not configured, each with a warning for people.
pub fn unconfigured<'a>(books: &'a [Books], fleet: &'a Fleet) -> impl Iterator<Item = (&'a Books, String)> {
    let missing = books.iter().filter(|books| fleet.get(&books.backend).is_none());
    let holding = missing.filter(|books| books.used_bytes + books.orphan_bytes + books.reserved_bytes > 0);
    holding.map(|books| {
        let warning = format!(
            "backend {} holds {} bytes of objects and is not configured: they cannot be read",
            books.backend, books.used_bytes
        );
        (books, warning)
    })
}

/// Logs backends that hold bytes and are not configured.
pub async fn warn_of_unconfigured(catalog: &Catalog, fleet: &Fleet) {
    match catalog.books().await {
        Ok(books) => {
            for (books, _) in unconfigured(&books, fleet) {
                let (backend, used_bytes) = (&books.backend, books.used_bytes);
                tracing::warn!(%backend, used_bytes, "backend holds objects and is not configured");
            }
        }
        Err(error) => tracing::warn!(%error, "backends that are not configured could not be looked up"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use s3o_backend::{Backend as _, Fleet, Memory};
    use s3o_model::clock::Timestamp;
    use s3o_model::names::BackendName;
    use s3o_server::admin::Health as Shown;

    use super::{of, readiness};

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn fleet() -> (Fleet, Vec<BackendName>) {
        let memory = |name: &str| Arc::new(Memory::new(name.parse().expect("valid")));
        let backends = [memory("a"), memory("b")];
        let names = backends.iter().map(|backend| backend.name().clone()).collect();
        (Fleet::new(backends.map(|backend| backend as _).to_vec()).expect("two names"), names)
    }

    fn fail(fleet: &Fleet, name: &BackendName, times: usize) {
        for _ in 0..times {
            fleet.record_probe(name, Err("no route".to_owned()), NOW);
        }
    }

    #[test]
    fn not_ready_once_no_backend_was_readable_for_half_a_minute() {
        let (fleet, names) = fleet();
        let late = NOW.after(Duration::from_secs(30));
        assert_eq!(readiness(&fleet, None, late).unavailable, Vec::<String>::new());
        fail(&fleet, &names[0], 2);
        let report = readiness(&fleet, None, late);
        assert_eq!((report.ready, report.unavailable), (true, vec!["backend a: away".to_owned()]));
        fail(&fleet, &names[1], 1);
        assert!(readiness(&fleet, None, late).ready, "one failure is not an outage");
        fail(&fleet, &names[1], 1);
        assert!(readiness(&fleet, None, NOW.after(Duration::from_secs(29))).ready);
        assert!(!readiness(&fleet, None, late).ready);
        fleet.record_probe(&names[0], Ok(()), late);
        assert!(readiness(&fleet, None, late).ready);
        assert_eq!(readiness(&fleet, Some("unavailable"), late).unavailable[0], "catalog: unavailable");
        assert!(!readiness(&fleet, Some("unavailable"), late).ready);
    }

    #[test]
    fn status_tells_since_when_and_why_a_backend_is_away() {
        let (fleet, names) = fleet();
        fail(&fleet, &names[0], 2);
        let status = of(&fleet, &names[0], NOW);
        assert_eq!((status.health, status.error.as_deref()), (Shown::Away, Some("no route")));
        assert_eq!(status.since, Some(NOW.to_string()));
        fleet.record_no_space(&names[1], 10, NOW);
        let status = of(&fleet, &names[1], NOW);
        assert_eq!((status.health, status.full_from), (Shown::Full, Some(10)));
    }
}
