//! The cleanup queue, dead letters and findings over HTTP.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::fixture::{AdminFixture, BEARER};
use super::{error_code, parsed};

/// Three dead letters of 7 bytes each; only the bytes of number 2 are still on the backend.
async fn with_dead_letters() -> AdminFixture {
    let fixture = AdminFixture::new().await;
    for key in ["a", "b", "c"] {
        fixture.put(key, b"1234567").await;
        fixture.delete(key).await;
    }
    fixture.flaky.refuse_deletes(true);
    fixture.clean_up().await;
    fixture.flaky.refuse_deletes(false);
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.iter().map(|letter| letter.id.0).collect::<Vec<_>>(), [1, 2, 3]);
    for letter in letters.iter().filter(|letter| letter.id.0 != 2) {
        fixture.memory.corrupt(&letter.physical_key, None);
    }
    fixture
}

async fn left(fixture: &AdminFixture) -> Vec<i64> {
    fixture.dead_letters().await.iter().map(|letter| letter.id.0).collect()
}

fn events(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["event"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn dead_letters_are_listed_in_pages() {
    let fixture = with_dead_letters().await;
    let page = async |query: &str| parsed(fixture.ask("GET", &format!("/admin/api/dlq?{query}"), BEARER).await);
    let first = page("limit=2").await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["next"]), (2, &json!("2")));
    let last = page("limit=2&after=2&backend=disk&reason=").await;
    let [letter] = last["items"].as_array().unwrap().as_slice() else { panic!("{last}") };
    assert_eq!((&letter["id"], &letter["backend"], &last["next"]), (&json!(3), &json!("disk"), &json!(null)));
    let mut fields: Vec<_> = letter.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "attempts",
        "backend",
        "created_at",
        "dead_since",
        "id",
        "last_error",
        "original_id",
        "physical_key",
        "reason",
        "size_bytes",
        "target",
    ];
    assert_eq!(fields, expected);
    assert_eq!(page("backend=cloud").await, json!({"items": [], "next": null}));
}

#[tokio::test]
async fn queued_cleanups_are_listed() {
    let fixture = AdminFixture::new().await;
    fixture.put("a", b"1234567").await;
    fixture.delete("a").await;
    let list = parsed(fixture.ask("GET", "/admin/api/cleanup-queue", BEARER).await);
    let [row] = list["items"].as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!((&row["backend"], &row["size_bytes"], &row["attempts"]), (&json!("disk"), &json!(7), &json!(0)));
    let mut fields: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "attempts",
        "backend",
        "claimed_by",
        "created_at",
        "due",
        "id",
        "last_error",
        "physical_key",
        "reason",
        "size_bytes",
        "target",
    ];
    assert_eq!(fields, expected);
}

#[tokio::test]
async fn retry_and_discard_of_one_dead_letter_are_audited() {
    let fixture = with_dead_letters().await;
    let answer = parsed(fixture.ask("POST", "/admin/api/dlq/1/retry", BEARER).await);
    assert_eq!(answer, json!({"id": 1, "retried": true}));
    let (status, body) = fixture.ask("POST", "/admin/api/dlq/2/discard", BEARER).await;
    assert_eq!((status, error_code(&body).as_str()), (StatusCode::CONFLICT, "still_there"));
    assert_eq!(left(&fixture).await, [2, 3]);
    let answer = parsed(fixture.ask("POST", "/admin/api/dlq/2/discard?force=true", BEARER).await);
    assert_eq!(answer, json!({"id": 2, "discarded": true}));
    let lines = fixture.audited();
    let expected = ["dlq.retried", "admin.dlq.retry", "admin.dlq.discard", "dlq.discarded", "admin.dlq.discard"];
    assert_eq!(events(&lines), expected);
    assert_eq!((&lines[0]["actor"], &lines[0]["size_bytes"]), (&json!("admin"), &json!(7)));
    assert_eq!(lines[0]["request_id"], lines[1]["request_id"]);
    assert_eq!((&lines[2]["id"], &lines[2]["status"]), (&json!("2"), &json!(409)));
}

#[tokio::test]
async fn selected_dead_letters_are_discarded_or_refused() {
    let fixture = with_dead_letters().await;
    let answer = parsed(fixture.ask("POST", "/admin/api/dlq/discard?backend=disk", BEARER).await);
    assert_eq!(answer, json!({"discarded": 2, "refused": 1}));
    assert_eq!(parsed(fixture.ask("POST", "/admin/api/dlq/retry", BEARER).await), json!({"retried": 1}));
    assert_eq!(left(&fixture).await, [0; 0]);
    assert_eq!(events(&fixture.audited()).iter().filter(|event| **event == "dlq.discarded").count(), 2);
}

#[tokio::test]
async fn invalid_requests_change_no_dead_letter() {
    let fixture = with_dead_letters().await;
    for (path, status, expected) in [
        ("9/retry", StatusCode::NOT_FOUND, "no_such_dead_letter"),
        ("9/discard?force=true", StatusCode::NOT_FOUND, "no_such_dead_letter"),
        ("one/retry", StatusCode::NOT_FOUND, "no_such_dead_letter"),
        ("2/discard?force=maybe", StatusCode::BAD_REQUEST, "invalid_query"),
        ("2/discard?forced=true", StatusCode::BAD_REQUEST, "invalid_query"),
        ("retry?bakend=cloud", StatusCode::BAD_REQUEST, "invalid_query"),
        ("retry?backend=No%20Name", StatusCode::BAD_REQUEST, "invalid_query"),
        ("retry?force=true", StatusCode::BAD_REQUEST, "invalid_query"),
        ("discard", StatusCode::BAD_REQUEST, "invalid_query"),
        ("discard?force=true&backend=&reason=", StatusCode::BAD_REQUEST, "invalid_query"),
    ] {
        let (found, body) = fixture.ask("POST", &format!("/admin/api/dlq/{path}"), BEARER).await;
        assert_eq!((found, error_code(&body).as_str()), (status, expected), "{path}");
    }
    assert_eq!(fixture.ask("GET", "/admin/api/dlq?after=x", BEARER).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(left(&fixture).await, [1, 2, 3]);
    fixture.set_catalog_outage(true);
    let (status, body) = fixture.ask("GET", "/admin/api/cleanup-queue", BEARER).await;
    assert_eq!((status, error_code(&body).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "away"));
}

/// Finding 1: the forced discard of a dead letter. Finding 2: bytes that were gone after an accept.
async fn with_findings() -> AdminFixture {
    let fixture = with_dead_letters().await;
    parsed(fixture.ask("POST", "/admin/api/dlq/2/discard?force=true", BEARER).await);
    let before = fixture.memory.keys();
    fixture.put("d", b"1").await;
    let key = fixture.memory.keys().into_iter().find(|key| !before.contains(key)).unwrap();
    fixture.delete("d").await;
    fixture.clock.advance(std::time::Duration::from_secs(1));
    let path = format!("/admin/api/backends/disk/accept?found={}", fixture.found_hash().await);
    parsed(fixture.ask("POST", &path, BEARER).await);
    fixture.memory.corrupt(&key, None);
    fixture.clean_up().await;
    fixture
}

#[tokio::test]
async fn findings_are_listed_in_pages_and_by_kind() {
    let fixture = with_findings().await;
    let page = async |query: &str| {
        let page = parsed(fixture.ask("GET", &format!("/admin/api/findings?{query}"), BEARER).await);
        let items: Vec<_> =
            page["items"].as_array().unwrap().iter().map(|item| (item["id"].clone(), item["kind"].clone())).collect();
        (items, page["next"].clone())
    };
    assert_eq!(page("limit=1").await, (vec![(json!(1), json!("written_off"))], json!("1")));
    let second = (vec![(json!(2), json!("absent_after_accept"))], json!(null));
    assert_eq!(page("after=1").await, second);
    assert_eq!(page("kind=absent_after_accept").await, second);
    for query in ["after=x", "colour=red", "kind=%00"] {
        let (status, _) = fixture.ask("GET", &format!("/admin/api/findings?{query}"), BEARER).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
    }
}
