//! The admin API over HTTP: paths, tokens, answers.

use axum::http::StatusCode;
use s3o_model::clock::{Clock as _, Timestamp};
use s3o_model::lifecycle::ConfiguredRule;
use serde_json::{Value, json};

use crate::audit::AuditFilter;
use fixture::{AdminFixture, BEARER};

mod catalog;
mod fixture;
mod queues;

fn error_code(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap();
    value["error"]["code"].as_str().unwrap().to_owned()
}

fn parsed((status, body): (StatusCode, String)) -> Value {
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn health_checks_need_no_token() {
    let fixture = AdminFixture::new().await;
    assert_eq!(fixture.ask("GET", "/health/live", None).await, (StatusCode::OK, "ok".into()));
    fixture.set_catalog_outage(true);
    let (status, body) = fixture.ask("GET", "/health/ready", None).await;
    assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "not ready\ncatalog: unavailable"));
    fixture.set_catalog_outage(false);
    assert_eq!(fixture.ask("GET", "/health/ready", None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn metrics_are_read_for_each_scrape() {
    let fixture = AdminFixture::new().await;
    for (key, used) in [("a", 5), ("b", 10)] {
        fixture.put(key, b"12345").await;
        let (status, text) = fixture.ask("GET", "/metrics", None).await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains(&format!("s3o_quota_bytes_used{{backend=\"disk\"}} {used}")), "{text}");
    }
}

#[tokio::test]
async fn api_requires_the_token() {
    let fixture = AdminFixture::new().await;
    let path = "/admin/api/workers/cleanup/run";
    for header in [None, Some(("authorization", "Bearer wrong")), Some(("x-admin-token", "wrong"))] {
        let (status, body) = fixture.ask("POST", path, header).await;
        assert_eq!((status, error_code(&body).as_str()), (StatusCode::UNAUTHORIZED, "unauthorized"));
    }
    for header in [BEARER, Some(("x-admin-token", "secret"))] {
        let (status, body) = fixture.ask("POST", path, header).await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.contains("\"outcome\":\"ok\""), "{body}");
    }
    assert_eq!(fixture.ask("GET", "/admin/api/nothing", None).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn errors_are_json_with_a_code() {
    let fixture = AdminFixture::new().await;
    for (method, path, status, expected) in [
        ("POST", "/admin/api/workers/unknown/run", StatusCode::NOT_FOUND, "no_such_worker"),
        ("POST", "/admin/api/workers/unknown/pause", StatusCode::NOT_FOUND, "no_such_worker"),
        ("POST", "/admin/api/workers/unknown/resume", StatusCode::NOT_FOUND, "no_such_worker"),
        ("GET", "/admin/api/workers?limit=many", StatusCode::BAD_REQUEST, "invalid_query"),
        ("GET", "/admin/api/audit?since=yesterday", StatusCode::BAD_REQUEST, "invalid_since"),
        ("POST", "/admin/api/backends/nowhere/accept", StatusCode::NOT_FOUND, "no_such_backend"),
        ("POST", "/admin/api/backends/disk/accept", StatusCode::CONFLICT, "refused"),
        ("POST", "/admin/api/backends/disk/accept?found=other", StatusCode::CONFLICT, "refused"),
        ("POST", "/admin/api/backends/disk/dismiss?host=unknown", StatusCode::NOT_FOUND, "no_such_record"),
        ("GET", "/admin/api/nothing", StatusCode::NOT_FOUND, "not_found"),
        ("GET", "/nothing", StatusCode::NOT_FOUND, "not_found"),
        ("GET", "/admin/api/workers/cleanup/run", StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
    ] {
        let (found, body) = fixture.ask(method, path, BEARER).await;
        assert_eq!((found, error_code(&body).as_str()), (status, expected), "{path}");
    }
}

#[tokio::test]
async fn backend_is_accepted_with_the_hash_that_was_shown() {
    let fixture = AdminFixture::new().await;
    let (status, body) = fixture.ask("POST", "/admin/api/backends/disk/accept", BEARER).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let shown: Value = serde_json::from_str(&body).unwrap();
    let mut fields: Vec<_> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["error", "expected", "found", "hash", "instances", "newest_missing", "queued_deletes"]);
    fixture.record_dispute("other:9000").await;
    let dismissed = fixture.ask("POST", "/admin/api/backends/disk/dismiss?host=other%3A9000", BEARER).await;
    assert_eq!(parsed(dismissed), json!({"backend": "disk", "host": "other:9000", "dismissed": true}));
    let path = format!("/admin/api/backends/disk/accept?found={}", shown["hash"].as_str().unwrap());
    assert_eq!(parsed(fixture.ask("POST", &path, BEARER).await), json!({"backend": "disk", "accepted": true}));
}

#[tokio::test]
async fn status_shows_backends_and_queues() {
    let fixture = AdminFixture::new().await;
    fixture.put("a", b"12345").await;
    let status = parsed(fixture.ask("GET", "/admin/api/status", BEARER).await);
    assert_eq!(status["backends"][0]["name"], "disk");
    assert_eq!(status["backends"][0]["used"], 5);
    assert_eq!(status["backends"][0]["health"], "ok");
    assert_eq!(status["queues"]["cleanup"], 0);
    fixture.set_catalog_outage(true);
    let (status, body) = fixture.ask("GET", "/admin/api/status", BEARER).await;
    assert_eq!((status, error_code(&body).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "away"));
}

#[tokio::test]
async fn workers_are_paused_and_resumed() {
    let fixture = AdminFixture::new().await;
    for (verb, paused) in [("pause", true), ("resume", false)] {
        let path = format!("/admin/api/workers/cleanup/{verb}");
        let answer = parsed(fixture.ask("POST", &path, BEARER).await);
        assert_eq!(answer, json!({"worker": "cleanup", "paused": paused}));
        let list = parsed(fixture.ask("GET", "/admin/api/workers?limit=1", BEARER).await);
        let [worker] = list["items"].as_array().unwrap().as_slice() else { panic!("{list}") };
        assert_eq!((&worker["name"], &worker["paused"]), (&json!("cleanup"), &json!(paused)));
        assert_eq!(list["next"], "cleanup");
    }
}

#[tokio::test]
async fn workers_are_listed_in_pages_by_name() {
    let fixture = AdminFixture::new().await;
    for (query, names, next) in [
        ("", vec!["cleanup", "expiry", "lifecycle", "reconciler"], json!(null)),
        ("?limit=2", vec!["cleanup", "expiry"], json!("expiry")),
        ("?limit=2&after=expiry", vec!["lifecycle", "reconciler"], json!(null)),
        ("?limit=4", vec!["cleanup", "expiry", "lifecycle", "reconciler"], json!(null)),
    ] {
        let page = parsed(fixture.ask("GET", &format!("/admin/api/workers{query}"), BEARER).await);
        let found: Vec<_> =
            page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!((found, &page["next"]), (names, &next), "{query}");
    }
}

#[tokio::test]
async fn verify_checks_the_requested_scope() {
    let fixture = AdminFixture::new().await;
    let cases = [
        ("", (false, false)),
        ("?deep=true", (true, false)),
        ("?catalog=true", (false, true)),
        ("?deep=false&catalog=true", (false, true)),
    ];
    let mut shallow_checks = 0;
    for (query, (deep, catalog)) in cases {
        let report = parsed(fixture.ask("POST", &format!("/admin/api/verify{query}"), BEARER).await);
        assert_eq!((&report["holds"], &report["deep"]), (&json!(true), &json!(deep)), "{report}");
        assert_eq!(report["backends"].as_array().unwrap().len(), usize::from(deep));
        let checks = report["checks"].as_array().unwrap().len();
        if query.is_empty() {
            shallow_checks = checks;
        } else if !deep {
            assert_eq!(checks, shallow_checks + usize::from(catalog), "the check of the database itself");
        }
    }
    assert_eq!(fixture.ask("POST", "/admin/api/verify?deep=very", BEARER).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(parsed(fixture.ask("GET", "/admin/api/verify", BEARER).await)["running"], false);
}

#[tokio::test]
async fn log_level_is_shown_and_changed() {
    let fixture = AdminFixture::new().await;
    assert_eq!(parsed(fixture.ask("GET", "/admin/api/log-level", BEARER).await), json!({"level": "info"}));
    let changed = fixture.send("PUT", "/admin/api/log-level", BEARER, r#"{"level":"debug"}"#).await;
    assert_eq!(parsed(changed), json!({"level": "debug"}));
    let (status, body) = fixture.send("PUT", "/admin/api/log-level", BEARER, "loud").await;
    assert_eq!((status, error_code(&body).as_str()), (StatusCode::BAD_REQUEST, "invalid_level"));
    assert_eq!(parsed(fixture.ask("GET", "/admin/api/log-level", BEARER).await), json!({"level": "debug"}));
}

#[tokio::test]
async fn changes_are_audited_and_reads_are_not() {
    let fixture = AdminFixture::new().await;
    let accept = format!("/admin/api/backends/disk/accept?found={}", fixture.found_hash().await);
    for (method, path, header) in [
        ("GET", "/admin/api/status", BEARER),
        ("POST", "/admin/api/workers/cleanup/pause", BEARER),
        ("POST", &accept, BEARER),
        ("POST", "/admin/api/backends/disk/accept", None),
        ("POST", "/admin/api/nothing", BEARER),
    ] {
        fixture.ask(method, path, header).await;
    }
    let lines = fixture.audited();
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["admin.workers.pause", "backend.accepted", "admin.backends.accept", "admin.AuthFailure"]);
    assert_eq!((&lines[0]["name"], &lines[0]["status"]), (&json!("cleanup"), &json!(200)));
    assert_eq!(lines[1]["request_id"], lines[2]["request_id"]);
    let found = parsed(fixture.ask("GET", "/admin/api/audit?event=admin.*&limit=2", BEARER).await);
    assert_eq!(found, json!({"items": [lines[2], lines[3]], "next": null}));
}

#[tokio::test]
async fn lifecycle_preview_counts_what_rules_would_delete() {
    let fixture = AdminFixture::new().await;
    let path = "/admin/api/lifecycle/preview";
    fixture.set_catalog_outage(true);
    let (status, body) = fixture.ask("GET", path, BEARER).await;
    assert_eq!((status, error_code(&body).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "away"));
    fixture.set_catalog_outage(false);
    for key in ["tmp/1", "tmp/2", "tmp/3", "tmp/4", "tmp/5", "tmp/6", "tmp/7", "kept"] {
        fixture.put(key, b"x").await;
    }
    let rule = ConfiguredRule::new(0, fixture::bucket(), "tmp/".to_owned(), 1);
    fixture.rules.replace([rule].into_iter().collect()).await;
    fixture.clock.advance(std::time::Duration::from_hours(72));
    let preview = parsed(fixture.ask("GET", path, BEARER).await);
    assert_eq!(preview["total"], json!({"count": 7, "bytes": 7, "uploads": 0}));
    assert_eq!((preview["items"].as_array().unwrap().len(), &preview["next"]), (1, &json!(null)));
    assert_eq!(preview["left_out"], 0);
    assert_eq!(fixture.ask("GET", path, None).await.0, StatusCode::UNAUTHORIZED);
    let report = parsed(fixture.ask("POST", "/admin/api/workers/lifecycle/run?dry_run=true", BEARER).await);
    let expected =
        json!({"worker": "lifecycle", "dry_run": true, "outcome": "ok", "items": {"deleted": 7}, "error": null});
    assert_eq!(report, expected);
}

#[tokio::test]
async fn dry_run_is_refused_for_workers_without_one() {
    let fixture = AdminFixture::new().await;
    for (worker, expected) in [("lifecycle", 200), ("cleanup", 400), ("unknown", 404)] {
        let path = format!("/admin/api/workers/{worker}/run?dry_run=true");
        assert_eq!(fixture.ask("POST", &path, BEARER).await.0.as_u16(), expected, "{worker}");
    }
}

#[tokio::test]
async fn accepted_clock_is_audited_with_the_reason_it_was_held() {
    let fixture = AdminFixture::new().await;
    fixture.clock_guard.observe().await.unwrap();
    fixture.clock.set(Timestamp::from_millis(fixture.clock.now().millis() + 86_400_000));
    let reason = fixture.clock_guard.held().expect("the clock jumped").reason;
    let answer = fixture.ask("POST", "/admin/api/clock/accept", Some(("x-admin-token", "secret"))).await;
    assert_eq!(parsed(answer), json!({"accepted": true, "held": reason}));
    let mut filter = AuditFilter::newest(9);
    filter.event = Some("clock.accepted".to_owned());
    let lines = fixture.audit.latest(&filter).expect("lines");
    assert_eq!((lines.len(), &lines[0]["reason"], &lines[0]["actor"]), (1, &json!(reason), &json!("admin")));
}
