//! Queries that confirm an index read the table and not the index.

use super::{Mode, Sqlite, clock, options};
use crate::Driver;
use crate::audits::BY_TABLE;
use crate::unit::Statement;
use crate::verification::NAMED_BY_TABLE;

async fn plan(sql: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = Sqlite::open(&options(folder.path(), Mode::Inline, clock())).expect("a catalog");
    let explain: &'static str = format!("EXPLAIN QUERY PLAN {sql}").leak();
    let rows = driver.read(Statement::new(explain, vec![])).await.expect("a plan");
    rows.iter().map(|row| row.string("detail").expect("a step")).collect()
}

#[tokio::test]
async fn references_are_confirmed_without_an_index() {
    let steps = plan(BY_TABLE).await;
    for table in ["objects", "multipart_parts", "content_parts", "pending_objects"] {
        assert!(steps.contains(&format!("SCAN {table}")), "{table}: {steps:?}");
    }
    let by_index = plan(&BY_TABLE.replace("UNINDEXED(content_id; version_id)", "content_id")).await;
    assert!(by_index.iter().any(|step| step.contains("INDEX objects_content")), "{by_index:?}");
}

#[tokio::test]
async fn names_are_confirmed_without_an_index() {
    let steps = plan(&NAMED_BY_TABLE).await;
    for table in ["object_locations", "cleanup_queue", "cleanup_dlq", "findings", "pending_objects"] {
        assert!(steps.contains(&format!("SCAN {table}")), "{table}: {steps:?}");
    }
    let by_index = NAMED_BY_TABLE.replace("UNINDEXED(physical_key; size_bytes)", "physical_key");
    let steps = plan(&by_index.replace("UNINDEXED(backend_name; size_bytes)", "backend_name")).await;
    assert!(steps.iter().any(|step| step.contains("INDEX object_locations_key")), "{steps:?}");
}

#[tokio::test]
async fn rows_to_remove_are_checked_by_primary_key() {
    for sql in
        [crate::objects::ROWS_NOT_DUE, crate::objects::ROWS_NOT_EXPIRED, crate::objects::expire::CLAIMED_UNEXPIRED]
    {
        let steps = plan(sql).await;
        let by_primary_key =
            steps.iter().any(|step| step.starts_with("SEARCH o USING PRIMARY KEY (bucket_id=? AND key=?)"));
        assert!(by_primary_key, "{steps:?}");
    }
    let upload = "UPDATE multipart_uploads AS u SET state = 'aborted' WHERE u.id = $1 AND u.state = 'open'";
    assert!(plan(upload).await[0].contains("USING PRIMARY KEY (id=?)"));
}
