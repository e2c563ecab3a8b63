//! The admin door from outside: paths, tokens, answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_model::clock::SystemClock;
use s3o_model::entropy::SystemEntropy;
use s3o_workers::VerifyScope;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{
    AcceptError, AdminParts, AdminToken, BackendControl, BackendStatus, ClockControl, InvalidLevel, LifecycleControl,
    LogLevel, MetricsPage, QueueControl, Readiness, ReadyReport, Refresh, Status, StatusSource, VerifyControl,
    WorkerControl, WorkerError, router,
};
use crate::audit::{Audit, Filter};

mod catalog;
mod queues;

struct House {
    ready: AtomicBool,
    gauge: Gauge,
    level: Mutex<String>,
    paused: AtomicBool,
    letters: Mutex<Vec<queues::Letter>>,
    audit: Arc<Audit>,
    _folder: tempfile::TempDir,
}

impl Default for House {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let audit = Arc::new(Audit::open(&folder.path().join("audit.jsonl"), Arc::new(SystemClock)).unwrap());
        Self {
            ready: AtomicBool::default(),
            gauge: Gauge::default(),
            level: Mutex::new("info".into()),
            paused: AtomicBool::default(),
            letters: Mutex::default(),
            audit,
            _folder: folder,
        }
    }
}

#[async_trait]
impl StatusSource for House {
    async fn status(&self) -> Result<Status, String> {
        let disk = BackendStatus { name: "disk".into(), used: 5, ..BackendStatus::default() };
        Ok(Status { backends: vec![disk], ..Status::default() })
    }
}

impl LogLevel for House {
    fn level(&self) -> String {
        self.level.lock().clone()
    }

    fn set_level(&self, level: &str) -> Result<(), InvalidLevel> {
        if level == "loud" {
            return Err(InvalidLevel(level.into()));
        }
        level.clone_into(&mut self.level.lock());
        Ok(())
    }
}

#[async_trait]
impl Readiness for House {
    async fn ready(&self) -> ReadyReport {
        let ready = self.ready.load(Ordering::SeqCst);
        ReadyReport { ready, unavailable: if ready { vec![] } else { vec!["backend disk: away".into()] } }
    }
}

#[async_trait]
impl Refresh for House {
    async fn refresh(&self) {
        self.gauge.set(7);
    }
}

#[async_trait]
impl WorkerControl for House {
    async fn list(&self) -> Result<Vec<Value>, WorkerError> {
        let paused = self.paused.load(Ordering::SeqCst);
        Ok(vec![json!({"name": "cleanup", "paused": paused}), json!({"name": "expiry", "paused": false})])
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<(), WorkerError> {
        if name != "cleanup" {
            return Err(WorkerError::NotFound);
        }
        self.paused.store(paused, Ordering::SeqCst);
        Ok(())
    }

    async fn run(&self, name: &str) -> Option<Value> {
        (name == "cleanup").then(|| json!({"worker": name, "outcome": "ok"}))
    }

    async fn rehearse(&self, name: &str) -> Result<Option<Value>, WorkerError> {
        match name {
            "lifecycle" => Ok(Some(json!({"worker": name, "dry_run": true}))),
            "cleanup" => Ok(None),
            _ => Err(WorkerError::NotFound),
        }
    }
}

#[async_trait]
impl ClockControl for House {
    async fn accept(&self) -> Result<Option<String>, String> {
        Ok(Some("the clock jumped".to_owned()))
    }
}

#[async_trait]
impl BackendControl for House {
    async fn accept(&self, name: &str, found: Option<&str>) -> Result<(), AcceptError> {
        match (name, found) {
            ("disk", Some("hash")) => Ok(()),
            ("disk", _) => Err(AcceptError::Refused { why: "repeat it".into(), shown: json!({"hash": "hash"}) }),
            _ => Err(AcceptError::NotFound),
        }
    }

    async fn dismiss(&self, name: &str, host: &str) -> Result<(), AcceptError> {
        match (name, host) {
            ("disk", "other:9000") => Ok(()),
            ("disk", _) => Err(AcceptError::NoRecord),
            _ => Err(AcceptError::NotFound),
        }
    }
}

#[async_trait]
impl LifecycleControl for House {
    async fn preview(&self) -> Result<Value, String> {
        if self.ready.load(Ordering::SeqCst) { Ok(json!({"total": {"count": 7}})) } else { Err("no catalog".into()) }
    }
}

#[async_trait]
impl VerifyControl for House {
    async fn verify(&self, scope: VerifyScope) -> Value {
        json!({"holds": true, "deep": scope.deep, "catalog": scope.catalog})
    }

    fn progress(&self) -> Value {
        json!({"running": false})
    }
}

fn parts(house: &Arc<House>) -> AdminParts {
    let mut registry = Registry::default();
    registry.register("s3o_test", "a gauge", house.gauge.clone());
    AdminParts {
        token: AdminToken::new("secret"),
        readiness: house.clone(),
        metrics: MetricsPage { registry: Arc::new(Mutex::new(registry)), refresh: house.clone() },
        workers: house.clone(),
        backends: house.clone(),
        queues: house.clone(),
        lifecycle: house.clone(),
        status: house.clone(),
        clock: house.clone(),
        catalog: house.clone(),
        verify: house.clone(),
        log_level: house.clone(),
        audit: Arc::clone(&house.audit),
        entropy: Arc::new(SystemEntropy),
    }
}

async fn ask(house: &Arc<House>, method: &str, path: &str, header: Option<(&str, &str)>) -> (StatusCode, String) {
    send(house, method, path, header, "").await
}

async fn send(
    house: &Arc<House>,
    method: &str,
    path: &str,
    header: Option<(&str, &str)>,
    body: &'static str,
) -> (StatusCode, String) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let response = router(parts(house)).oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

fn code(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap();
    value["error"]["code"].as_str().unwrap().to_owned()
}

const BEARER: Option<(&str, &str)> = Some(("authorization", "Bearer secret"));

#[tokio::test]
async fn health_needs_no_token() {
    let house = Arc::new(House::default());
    assert_eq!(ask(&house, "GET", "/health/live", None).await, (StatusCode::OK, "ok".into()));
    assert_eq!(ask(&house, "GET", "/health/ready", None).await.0, StatusCode::SERVICE_UNAVAILABLE);
    house.ready.store(true, Ordering::SeqCst);
    assert_eq!(ask(&house, "GET", "/health/ready", None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn metrics_are_fresh() {
    let (status, text) = ask(&Arc::new(House::default()), "GET", "/metrics", None).await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("s3o_test 7"), "{text}");
}

#[tokio::test]
async fn the_api_opens_only_with_the_token() {
    let house = Arc::new(House::default());
    let path = "/admin/api/workers/cleanup/run";
    for header in [None, Some(("authorization", "Bearer wrong")), Some(("x-admin-token", "wrong"))] {
        let (status, body) = ask(&house, "POST", path, header).await;
        assert_eq!((status, code(&body).as_str()), (StatusCode::UNAUTHORIZED, "unauthorized"));
    }
    for header in [BEARER, Some(("x-admin-token", "secret"))] {
        let (status, body) = ask(&house, "POST", path, header).await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.contains("\"outcome\":\"ok\""), "{body}");
    }
    assert_eq!(ask(&house, "GET", "/admin/api/nothing", None).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn unknown_things_are_json_errors() {
    let house = Arc::new(House::default());
    for (method, path, status, expected) in [
        ("POST", "/admin/api/workers/nobody/run", StatusCode::NOT_FOUND, "no_such_worker"),
        ("POST", "/admin/api/workers/nobody/pause", StatusCode::NOT_FOUND, "no_such_worker"),
        ("POST", "/admin/api/workers/nobody/resume", StatusCode::NOT_FOUND, "no_such_worker"),
        ("GET", "/admin/api/workers?limit=many", StatusCode::BAD_REQUEST, "invalid_query"),
        ("GET", "/admin/api/audit?since=yesterday", StatusCode::BAD_REQUEST, "invalid_since"),
        ("POST", "/admin/api/backends/nowhere/accept", StatusCode::NOT_FOUND, "no_such_backend"),
        ("POST", "/admin/api/backends/disk/accept", StatusCode::CONFLICT, "refused"),
        ("POST", "/admin/api/backends/disk/accept?found=other", StatusCode::CONFLICT, "refused"),
        ("POST", "/admin/api/backends/disk/dismiss?host=nobody", StatusCode::NOT_FOUND, "no_such_record"),
        ("GET", "/admin/api/nothing", StatusCode::NOT_FOUND, "not_found"),
        ("GET", "/nothing", StatusCode::NOT_FOUND, "not_found"),
        ("GET", "/admin/api/workers/cleanup/run", StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
    ] {
        let (found, body) = ask(&house, method, path, BEARER).await;
        assert_eq!((found, code(&body).as_str()), (status, expected), "{path}");
    }
    let shown = ask(&house, "POST", "/admin/api/backends/disk/accept", BEARER).await;
    assert!(shown.0 == StatusCode::CONFLICT && shown.1.contains(r#""hash":"hash""#), "{shown:?}");
    assert_eq!(ask(&house, "POST", "/admin/api/backends/disk/accept?found=hash", BEARER).await.0, StatusCode::OK);
    let dismissed = ask(&house, "POST", "/admin/api/backends/disk/dismiss?host=other%3A9000", BEARER).await;
    assert_eq!(dismissed.0, StatusCode::OK);
}

fn parsed((status, body): (StatusCode, String)) -> Value {
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn status_tells_of_the_backends() {
    let status = parsed(ask(&Arc::new(House::default()), "GET", "/admin/api/status", BEARER).await);
    assert_eq!(status["backends"][0]["name"], "disk");
    assert_eq!(status["backends"][0]["used"], 5);
    assert_eq!(status["backends"][0]["health"], "ok");
    assert_eq!(status["queues"]["cleanup"], 0);
}

#[tokio::test]
async fn workers_are_paused_and_resumed() {
    let house = Arc::new(House::default());
    for (verb, paused) in [("pause", true), ("resume", false)] {
        let path = format!("/admin/api/workers/cleanup/{verb}");
        assert_eq!(parsed(ask(&house, "POST", &path, BEARER).await), json!({"worker": "cleanup", "paused": paused}));
        let list = parsed(ask(&house, "GET", "/admin/api/workers?limit=1", BEARER).await);
        assert_eq!(list, json!({"items": [{"name": "cleanup", "paused": paused}], "next": "cleanup"}));
    }
}

#[tokio::test]
async fn verification_is_as_deep_as_it_is_asked_to_be() {
    let house = Arc::new(House::default());
    let cases = [
        ("", (false, false)),
        ("?deep=true", (true, false)),
        ("?catalog=true", (false, true)),
        ("?deep=false&catalog=true", (false, true)),
    ];
    for (query, (deep, catalog)) in cases {
        let answer = parsed(ask(&house, "POST", &format!("/admin/api/verify{query}"), BEARER).await);
        assert_eq!(answer, json!({"holds": true, "deep": deep, "catalog": catalog}));
    }
    assert_eq!(ask(&house, "POST", "/admin/api/verify?deep=very", BEARER).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(parsed(ask(&house, "GET", "/admin/api/verify", BEARER).await), json!({"running": false}));
}

#[tokio::test]
async fn the_log_level_changes() {
    let house = Arc::new(House::default());
    assert_eq!(parsed(ask(&house, "GET", "/admin/api/log-level", BEARER).await), json!({"level": "info"}));
    let changed = send(&house, "PUT", "/admin/api/log-level", BEARER, r#"{"level":"debug"}"#).await;
    assert_eq!(parsed(changed), json!({"level": "debug"}));
    let (status, body) = send(&house, "PUT", "/admin/api/log-level", BEARER, "loud").await;
    assert_eq!((status, code(&body).as_str()), (StatusCode::BAD_REQUEST, "invalid_level"));
}

#[tokio::test]
async fn changes_are_audited_and_questions_are_not() {
    let house = Arc::new(House::default());
    for (method, path, header) in [
        ("GET", "/admin/api/status", BEARER),
        ("POST", "/admin/api/workers/cleanup/pause", BEARER),
        ("POST", "/admin/api/backends/disk/accept?found=hash", BEARER),
        ("POST", "/admin/api/backends/disk/accept", None),
        ("POST", "/admin/api/nothing", BEARER),
    ] {
        ask(&house, method, path, header).await;
    }
    let lines = house.audit.latest(&Filter::newest(10)).unwrap();
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["admin.workers.pause", "backend.accepted", "admin.backends.accept", "admin.AuthFailure"]);
    assert_eq!((&lines[0]["name"], &lines[0]["status"]), (&json!("cleanup"), &json!(200)));
    assert_eq!(lines[1]["request_id"], lines[2]["request_id"]);
    let found = parsed(ask(&house, "GET", "/admin/api/audit?event=admin.*&limit=2", BEARER).await);
    assert_eq!(found["items"], json!([lines[2], lines[3]]));
}

#[tokio::test]
async fn what_rules_would_remove_is_shown() {
    let house = Arc::new(House::default());
    let (status, body) = ask(&house, "GET", "/admin/api/lifecycle/preview", BEARER).await;
    assert_eq!((status, code(&body).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "away"));
    house.ready.store(true, Ordering::SeqCst);
    let (status, body) = ask(&house, "GET", "/admin/api/lifecycle/preview", BEARER).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, r#"{"total":{"count":7}}"#));
    assert_eq!(ask(&house, "GET", "/admin/api/lifecycle/preview", None).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_dry_run_is_for_workers_that_can_tell() {
    let house = Arc::new(House::default());
    for (worker, expected) in [("lifecycle", 200), ("cleanup", 400), ("nobody", 404)] {
        let path = format!("/admin/api/workers/{worker}/run?dry_run=true");
        assert_eq!(ask(&house, "POST", &path, BEARER).await.0.as_u16(), expected, "{worker}");
    }
}

#[tokio::test]
async fn an_accepted_clock_is_audited_with_what_was_held() {
    let house = Arc::new(House::default());
    let (status, body) = ask(&house, "POST", "/admin/api/clock/accept", Some(("x-admin-token", "secret"))).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, r#"{"accepted":true,"held":"the clock jumped"}"#));
    let mut filter = Filter::newest(9);
    filter.event = Some("clock.accepted".to_owned());
    let lines = house.audit.latest(&filter).expect("lines");
    assert_eq!(
        (lines.len(), &lines[0]["reason"], &lines[0]["actor"]),
        (1, &json!("the clock jumped"), &json!("admin"))
    );
}
