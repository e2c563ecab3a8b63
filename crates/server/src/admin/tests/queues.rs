//! The queue and the dead letters from outside.

use s3o_model::cleanup::Selection;
use s3o_model::ids::DeadLetterId;
use s3o_workers::{Bounds, Disposal, Disposed, Event, FindingSelection, Kept};

use super::{Arc, BEARER, Filter, House, QueueControl, StatusCode, Value, ask, async_trait, code, json, parsed};

/// A dead letter of the house: its number, and whether its bytes are there.
pub type Letter = (i64, bool);

impl House {
    /// Disposes of those that are meant; who stays, stays.
    fn dispose(&self, disposal: Disposal, meant: impl Fn(i64) -> bool) -> Disposed {
        let backend = "disk".parse().unwrap();
        let mut disposed = Disposed::default();
        self.letters.lock().retain(|(id, there)| {
            let name = match disposal {
                _ if !meant(*id) => return true,
                Disposal::Discard { force: false } if *there => {
                    disposed.kept.push(Kept::StillThere);
                    return true;
                }
                Disposal::Retry => "dlq.retried",
                Disposal::Discard { .. } => "dlq.discarded",
            };
            disposed.events.push(Event::new(name).at(&backend, &format!("b/k~{id}"), 7).with("id", *id));
            false
        });
        disposed
    }
}

#[async_trait]
impl QueueControl for House {
    async fn cleanups(&self, _which: &Selection, _after: i64, _limit: usize) -> Result<Vec<Value>, String> {
        Err("the catalog is away".to_owned())
    }

    async fn dead_letters(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<Value>, String> {
        let elsewhere = which.backend.as_ref().is_some_and(|backend| backend.as_str() != "disk");
        let letters = self.letters.lock();
        let shown = letters.iter().filter(|(id, _)| *id > after && !elsewhere).take(limit);
        Ok(shown.map(|(id, _)| json!({"id": id, "backend": "disk"})).collect())
    }

    async fn findings(&self, which: &FindingSelection, after: i64, limit: usize) -> Result<Vec<Value>, String> {
        let found = ["written_off", "absent_after_accept"].into_iter().zip(1..);
        let wanted = found.filter(|(kind, id)| *id > after && which.kind.as_deref().is_none_or(|only| only == *kind));
        Ok(wanted.take(limit).map(|(kind, id)| json!({"id": id, "kind": kind})).collect())
    }

    async fn dispose_one(&self, disposal: Disposal, id: DeadLetterId) -> Result<Option<Disposed>, String> {
        let disposed = self.dispose(disposal, |found| found == id.0);
        Ok(Some(disposed).filter(|disposed| *disposed != Disposed::default()))
    }

    async fn bounds(&self) -> Result<Option<Bounds>, String> {
        Ok(Some(Bounds::up_to(DeadLetterId(i64::MAX))))
    }

    async fn dispose_step(
        &self,
        disposal: Disposal,
        which: &Selection,
        bounds: Bounds,
    ) -> Result<(Disposed, Option<Bounds>), String> {
        // One at a time, to be asked again.
        let next = self.dead_letters(which, bounds.after(), 1).await?;
        let Some(id) = next.first().and_then(|letter| letter["id"].as_i64()) else {
            return Ok((Disposed::default(), None));
        };
        Ok((self.dispose(disposal, |found| found == id), Some(bounds.behind(DeadLetterId(id)))))
    }
}

fn house() -> Arc<House> {
    let house = House::default();
    *house.letters.lock() = vec![(1, false), (2, true), (3, false)];
    Arc::new(house)
}

fn left(house: &House) -> Vec<i64> {
    house.letters.lock().iter().map(|(id, _)| *id).collect()
}

#[tokio::test]
async fn dead_letters_come_in_pages() {
    let house = house();
    let page = |path: &'static str| {
        let house = Arc::clone(&house);
        async move { parsed(ask(&house, "GET", path, BEARER).await) }
    };
    let first = page("/admin/api/dlq?limit=2").await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["next"]), (2, &json!("2")));
    let last = page("/admin/api/dlq?limit=2&after=2&backend=disk&reason=").await;
    assert_eq!(last, json!({"items": [{"id": 3, "backend": "disk"}], "next": null}));
    assert_eq!(page("/admin/api/dlq?backend=cloud").await, json!({"items": [], "next": null}));
}

#[tokio::test]
async fn one_is_retried_or_discarded_and_told_of() {
    let house = house();
    let answer = parsed(ask(&house, "POST", "/admin/api/dlq/1/retry", BEARER).await);
    assert_eq!(answer, json!({"id": 1, "retried": true}));
    let (status, body) = ask(&house, "POST", "/admin/api/dlq/2/discard", BEARER).await;
    assert_eq!((status, code(&body).as_str()), (StatusCode::CONFLICT, "still_there"));
    assert_eq!(left(&house), [2, 3]);
    let answer = parsed(ask(&house, "POST", "/admin/api/dlq/2/discard?force=true", BEARER).await);
    assert_eq!(answer, json!({"id": 2, "discarded": true}));
    let lines = house.audit.latest(&Filter::newest(10)).unwrap();
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["dlq.retried", "admin.dlq.retry", "admin.dlq.discard", "dlq.discarded", "admin.dlq.discard"]);
    assert_eq!((&lines[0]["actor"], &lines[0]["size_bytes"]), (&json!("admin"), &json!(7)));
    assert_eq!(lines[0]["request_id"], lines[1]["request_id"]);
    assert_eq!((&lines[2]["id"], &lines[2]["status"]), (&json!("2"), &json!(409)));
}

#[tokio::test]
async fn many_are_disposed_of_step_by_step() {
    let house = house();
    let answer = parsed(ask(&house, "POST", "/admin/api/dlq/discard?backend=disk", BEARER).await);
    assert_eq!(answer, json!({"discarded": 2, "refused": 1}));
    assert_eq!(parsed(ask(&house, "POST", "/admin/api/dlq/retry", BEARER).await), json!({"retried": 1}));
    assert_eq!(left(&house), [0; 0]);
    let told = house.audit.latest(&Filter::newest(10)).unwrap();
    assert_eq!(told.iter().filter(|line| line["event"] == "dlq.discarded").count(), 2);
}

#[tokio::test]
async fn what_is_not_understood_changes_nothing() {
    let house = house();
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
        let (found, body) = ask(&house, "POST", &format!("/admin/api/dlq/{path}"), BEARER).await;
        assert_eq!((found, code(&body).as_str()), (status, expected), "{path}");
    }
    assert_eq!(ask(&house, "GET", "/admin/api/dlq?after=x", BEARER).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(left(&house), [1, 2, 3]);
    let (status, body) = ask(&house, "GET", "/admin/api/cleanup-queue", BEARER).await;
    assert_eq!((status, code(&body).as_str()), (StatusCode::SERVICE_UNAVAILABLE, "away"));
}

#[tokio::test]
async fn findings_are_listed_in_pages_and_by_kind() {
    let house = Arc::new(House::default());
    let page = async |query: &str| parsed(ask(&house, "GET", &format!("/admin/api/findings?{query}"), BEARER).await);
    assert_eq!(page("limit=1").await, json!({"items": [{"id": 1, "kind": "written_off"}], "next": "1"}));
    let second = json!({"items": [{"id": 2, "kind": "absent_after_accept"}], "next": null});
    assert_eq!(page("after=1").await, second);
    assert_eq!(page("kind=absent_after_accept").await, second);
    for query in ["after=x", "colour=red", "kind=%00"] {
        let (status, _) = ask(&house, "GET", &format!("/admin/api/findings?{query}"), BEARER).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
    }
}
