//! The admin door from outside: paths, tokens, answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{
    AcceptError, AdminParts, AdminToken, BackendControl, MetricsPage, Readiness, Refresh, WorkerControl, router,
};

#[derive(Default)]
struct House {
    ready: AtomicBool,
    gauge: Gauge,
}

#[async_trait]
impl Readiness for House {
    async fn ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
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
    async fn run(&self, name: &str) -> Option<Value> {
        (name == "cleanup").then(|| json!({"worker": name, "outcome": "ok"}))
    }
}

#[async_trait]
impl BackendControl for House {
    async fn accept(&self, name: &str) -> Result<(), AcceptError> {
        match name {
            "disk" => Ok(()),
            "busy" => Err(AcceptError::Refused("not frozen".into())),
            _ => Err(AcceptError::NotFound),
        }
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
    }
}

async fn ask(house: &Arc<House>, method: &str, path: &str, header: Option<(&str, &str)>) -> (StatusCode, String) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let response = router(parts(house)).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
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
        ("POST", "/admin/api/backends/nowhere/accept", StatusCode::NOT_FOUND, "no_such_backend"),
        ("POST", "/admin/api/backends/busy/accept", StatusCode::CONFLICT, "refused"),
        ("GET", "/admin/api/nothing", StatusCode::NOT_FOUND, "not_found"),
        ("GET", "/nothing", StatusCode::NOT_FOUND, "not_found"),
        ("GET", "/admin/api/workers/cleanup/run", StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
    ] {
        let (found, body) = ask(&house, method, path, BEARER).await;
        assert_eq!((found, code(&body).as_str()), (status, expected), "{path}");
    }
    assert_eq!(ask(&house, "POST", "/admin/api/backends/disk/accept", BEARER).await.0, StatusCode::OK);
}
