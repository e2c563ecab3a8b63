//! What must hold at every moment, and what must hold once no row is waiting for work.

use std::collections::BTreeSet;
use std::sync::Arc;

use s3o_catalog::Driver;
use s3o_catalog::conformance::{fixture, quota_usage};
use s3o_catalog::unit::{Row, Statement};
use s3o_model::physical_key::RESERVED_PREFIX;
use s3o_workers::{Report, Worker};

use crate::environment::TestBackend;

/// Number of rows that are waiting for work; an object with an expiry counts until it is deleted.
const WAITING: &str = "SELECT (SELECT count(*) FROM pending_objects) + (SELECT count(*) FROM cleanup_queue) \
     + (SELECT count(*) FROM cleanup_dlq) \
     + (SELECT count(*) FROM copy_work) + (SELECT count(*) FROM copy_review) \
     + (SELECT count(*) FROM objects WHERE expires_at IS NOT NULL) \
     + (SELECT count(*) FROM contents WHERE kind = 'joined' AND state = 'condemned') \
     + (SELECT count(*) FROM multipart_parts p JOIN multipart_uploads u ON u.id = p.upload_id \
        WHERE u.state <> 'open') AS waiting";

/// Contents whose number of present copies differs from their factor. Copies on an unhealthy backend are kept and do
/// not count. Nothing can be copied if all copies are lost.
const WRONG_COPIES: &str = "SELECT c.id FROM contents c WHERE c.kind = 'whole' AND c.state = 'live' AND c.factor > 1 \
     AND c.factor <> (SELECT count(*) FROM object_locations l JOIN backends k ON k.name = l.backend_name \
     WHERE l.content_id = c.id AND l.state = 'present' AND k.removing_since IS NULL AND k.unhealthy_since IS NULL) \
     AND EXISTS (SELECT 1 FROM object_locations e WHERE e.content_id = c.id AND e.state <> 'lost')";

/// Returns a row if the backend is written off: what it stores is no longer s3o's.
const WRITTEN_OFF: &str = "SELECT name FROM backends WHERE name = $1 AND removing_since IS NOT NULL";

const LOCATED: &str = "SELECT physical_key FROM object_locations WHERE backend_name = $1 AND state <> 'lost'";

const NAMED: &str = "SELECT physical_key FROM object_locations WHERE backend_name = $1 \
     UNION ALL SELECT physical_key FROM pending_objects WHERE backend_name = $1 \
     UNION ALL SELECT physical_key FROM cleanup_queue WHERE backend_name = $1 \
     UNION ALL SELECT physical_key FROM cleanup_dlq WHERE backend_name = $1";

async fn rows(driver: &dyn Driver, sql: &'static str, backend: Option<&TestBackend>) -> Vec<Row> {
    let params = backend.iter().map(|backend| (&backend.name()).into()).collect();
    driver.read(Statement::new(sql, params)).await.expect("a query")
}

async fn keys(driver: &dyn Driver, sql: &'static str, backend: &TestBackend) -> BTreeSet<String> {
    rows(driver, sql, Some(backend)).await.iter().map(|row| row.string("physical_key").expect("a key")).collect()
}

fn stored(backend: &TestBackend) -> BTreeSet<String> {
    backend.memory.keys().into_iter().filter(|key| !key.starts_with(RESERVED_PREFIX)).collect()
}

/// The backends that are not written off.
async fn in_use<'a>(driver: &dyn Driver, backends: &'a [TestBackend]) -> Vec<&'a TestBackend> {
    let mut used = Vec::new();
    for backend in backends {
        if rows(driver, WRITTEN_OFF, Some(backend)).await.is_empty() {
            used.push(backend);
        }
    }
    used
}

/// True if no row is waiting for work.
pub async fn is_settled(driver: &dyn Driver) -> bool {
    rows(driver, WAITING, None).await[0].int("waiting").expect("a number") == 0
}

/// Violations of the invariants that hold between any two calls.
pub async fn violations(driver: &Arc<dyn Driver>, backends: &[TestBackend]) -> Vec<String> {
    let fixture = fixture::Fixture::over(driver.clone(), fixture::clock(), ());
    let mut broken: Vec<String> = quota_usage::broken(&fixture)
        .await
        .into_iter()
        .map(|(invariant, what)| format!("{invariant}: {what}"))
        .collect();
    for backend in in_use(driver.as_ref(), backends).await {
        let named = keys(driver.as_ref(), NAMED, backend).await;
        broken
            .extend(stored(backend).difference(&named).map(|key| format!("no row names {key} on {}", backend.name())));
        if backend.limit_bytes.is_some_and(|limit| backend.memory.total_bytes() > limit) {
            broken.push(format!("{} holds more than its limit", backend.name()));
        }
        broken.extend(backend.memory.violations().iter().map(|key| format!("{key} was written twice")));
    }
    broken
}

/// Violations of the invariants of a settled store: the backends hold exactly the bytes that have a location.
pub async fn violations_when_settled(driver: &Arc<dyn Driver>, backends: &[TestBackend]) -> Vec<String> {
    let mut broken = violations(driver, backends).await;
    if !is_settled(driver.as_ref()).await {
        broken.push("rows are waiting for work".to_owned());
    }
    for row in rows(driver.as_ref(), WRONG_COPIES, None).await {
        broken.push(format!("content {} has not as many copies as its factor", row.text("id").expect("an ID")));
    }
    for backend in in_use(driver.as_ref(), backends).await {
        let (stored, located) = (stored(backend), keys(driver.as_ref(), LOCATED, backend).await);
        broken.extend(stored.symmetric_difference(&located).map(|key| format!("{key} is stored or located, not both")));
        if backend.memory.uploads() > 0 {
            broken.push(format!("{} unfinished uploads on {}", backend.memory.uploads(), backend.name()));
        }
    }
    broken
}

/// One tick of each worker. An injected fault may end it; a fault of the program itself panics.
pub async fn tick_all(workers: &[Arc<dyn Worker>]) {
    for worker in workers {
        tick(worker.as_ref(), &mut Report::default()).await;
    }
}

/// One tick; false if an injected fault ended it.
pub async fn tick(worker: &dyn Worker, report: &mut Report) -> bool {
    let outcome = worker.tick(report).await;
    // No injected fault makes quotas wrong: a repair means a fault of the program. Factors are lowered without a fault.
    let repaired = worker.name() == "quota_audit" && report.items.keys().any(|item| *item != "lowered");
    assert!(!repaired, "quota_audit repaired: {:?}", report.items);
    match outcome {
        Ok(()) => true,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains("fault:") && !text.contains("not a readable"), "{}: {text}", worker.name());
            false
        }
    }
}
