//! What must hold: at every moment, and when everything has come to rest.

use std::collections::BTreeSet;
use std::sync::Arc;

use s3o_catalog::Driver;
use s3o_catalog::conformance::{books, scene};
use s3o_catalog::unit::{Row, Statement};
use s3o_model::physical_key::RESERVED_PREFIX;
use s3o_workers::{Report, Worker};

use crate::world::{Site, World};

/// Rows that are still owed work; what expires is, until it is gone.
const OWED: &str = "SELECT (SELECT count(*) FROM pending_objects) + (SELECT count(*) FROM cleanup_queue) \
     + (SELECT count(*) FROM cleanup_dlq) \
     + (SELECT count(*) FROM objects WHERE expires_at IS NOT NULL) \
     + (SELECT count(*) FROM contents WHERE kind = 'joined' AND state = 'condemned') \
     + (SELECT count(*) FROM multipart_parts p JOIN multipart_uploads u ON u.id = p.upload_id \
        WHERE u.state <> 'open')";

const LOCATED: &str = "SELECT physical_key FROM object_locations WHERE backend_name = $1";

const NAMED: &str = "SELECT physical_key FROM object_locations WHERE backend_name = $1 \
     UNION ALL SELECT physical_key FROM pending_objects WHERE backend_name = $1 \
     UNION ALL SELECT physical_key FROM cleanup_queue WHERE backend_name = $1 \
     UNION ALL SELECT physical_key FROM cleanup_dlq WHERE backend_name = $1";

async fn rows(driver: &dyn Driver, sql: &'static str, backend: Option<&Site>) -> Vec<Row> {
    let params = backend.iter().map(|site| (&site.name()).into()).collect();
    driver.read(Statement::new(sql, params)).await.expect("a query")
}

async fn keys(driver: &dyn Driver, sql: &'static str, site: &Site) -> BTreeSet<String> {
    rows(driver, sql, Some(site)).await.iter().map(|row| row.text(0).expect("a key").to_owned()).collect()
}

fn stored(site: &Site) -> BTreeSet<String> {
    site.memory.keys().into_iter().filter(|key| !key.starts_with(RESERVED_PREFIX)).collect()
}

/// Whether no row is owed work any more.
pub async fn is_at_rest(driver: &dyn Driver) -> bool {
    rows(driver, OWED, None).await[0].int(0).expect("a number") == 0
}

/// What breaks an invariant that holds at every moment, between any two calls.
pub async fn broken_now(driver: &Arc<dyn Driver>, world: &World) -> Vec<String> {
    let scene = scene::Scene::over(driver.clone(), scene::clock(), ());
    let mut broken: Vec<String> =
        books::broken(&scene).await.into_iter().map(|(invariant, what)| format!("{invariant}: {what}")).collect();
    for site in &world.sites {
        let named = keys(driver.as_ref(), NAMED, site).await;
        broken.extend(stored(site).difference(&named).map(|key| format!("no row names {key} on {}", site.name())));
        if site.limit_bytes.is_some_and(|limit| site.memory.total_bytes() > limit) {
            broken.push(format!("{} holds more than its limit", site.name()));
        }
        broken.extend(site.memory.violations().iter().map(|key| format!("{key} was written twice")));
    }
    broken
}

/// What breaks an invariant of a system at rest: bytes are exactly where locations say.
pub async fn broken_at_rest(driver: &Arc<dyn Driver>, world: &World) -> Vec<String> {
    let mut broken = broken_now(driver, world).await;
    if !is_at_rest(driver.as_ref()).await {
        broken.push("rows are still owed work".to_owned());
    }
    for site in &world.sites {
        let (stored, located) = (stored(site), keys(driver.as_ref(), LOCATED, site).await);
        broken.extend(stored.symmetric_difference(&located).map(|key| format!("{key} is stored or located, not both")));
        if site.memory.uploads() > 0 {
            broken.push(format!("{} unfinished uploads on {}", site.memory.uploads(), site.name()));
        }
    }
    broken
}

/// One tick of each worker. What a fault ended is followed by another tick; a fault of the
/// program itself is not forgiven.
pub async fn tick_all(workers: &[Arc<dyn Worker>]) {
    for worker in workers {
        tick(worker.as_ref(), &mut Report::default()).await;
    }
}

/// One tick; says whether it came to its end.
pub async fn tick(worker: &dyn Worker, report: &mut Report) -> bool {
    let outcome = worker.tick(report).await;
    // An audit that finds something to repair has found a fault.
    let repaired = worker.name() == "quota_audit" && !report.items.is_empty();
    assert!(!repaired, "the books had drifted: {:?}", report.items);
    match outcome {
        Ok(()) => true,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains("fault:") && !text.contains("not a readable"), "{}: {text}", worker.name());
            false
        }
    }
}
