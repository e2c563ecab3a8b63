//! Backups of the catalog, and contradictions that an operator accepts.

use axum::http::StatusCode;

use super::error_code;
use super::fixture::{AdminFixture, BEARER};

#[tokio::test]
async fn backup_and_accept_report_why_they_did_nothing() {
    let fixture = AdminFixture::new().await;
    for (path, status, expected) in [
        ("/admin/api/catalog/backup", StatusCode::BAD_REQUEST, "invalid_query"),
        ("/admin/api/catalog/backup?path=relative.db", StatusCode::BAD_REQUEST, "invalid_path"),
        ("/admin/api/catalog/backup?path=/proc/none/copy.db", StatusCode::CONFLICT, "no_backup"),
        ("/admin/api/catalog/accept", StatusCode::CONFLICT, "nothing_to_accept"),
    ] {
        let (found, body) = fixture.ask("POST", path, BEARER).await;
        assert_eq!((found, error_code(&body).as_str()), (status, expected), "{path}");
    }
}
