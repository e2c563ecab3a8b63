//! Lists: `{items, next}`, a page at a time. `next` is what `after` must be for the page that
//! follows, and null on the last one.

use axum::Json;
use serde::Deserialize;
use serde_json::{Value, json};

/// How many items a page has unless it is asked for another number.
pub const LIMIT: usize = 100;
/// How many items a page has at most.
pub const LIMIT_MAX: usize = 1000;

/// Which page.
#[derive(Debug, Default, Deserialize)]
pub struct Page {
    limit: Option<usize>,
    after: Option<String>,
}

/// A page of items that stand in the order of one of their fields.
pub fn page(items: Vec<Value>, field: &str, page: &Page) -> Json<Value> {
    let name = |item: &Value| item[field].as_str().unwrap_or_default().to_owned();
    let limit = page.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    let follows = |item: &Value| page.after.as_ref().is_none_or(|after| name(item) > *after);
    let mut shown: Vec<Value> = items.into_iter().filter(follows).take(limit + 1).collect();
    let more = shown.len() > limit;
    shown.truncate(limit);
    let next = if more { shown.last().map(name) } else { None };
    Json(json!({"items": shown, "next": next}))
}

/// A page of items that were read by their `id`, with one more than are shown if there are more.
pub fn numbered(mut items: Vec<Value>, limit: usize) -> Json<Value> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|item| item["id"].to_string());
    Json(json!({"items": items, "next": next}))
}

#[cfg(test)]
mod tests {
    use super::{Page, numbered, page};
    use serde_json::json;

    #[test]
    fn a_page_of_numbers_says_where_the_next_begins() {
        let items = || [4, 7].map(|id| json!({"id": id})).to_vec();
        assert_eq!(numbered(items(), 1).0, json!({"items": [{"id": 4}], "next": "4"}));
        assert_eq!(numbered(items(), 2).0["next"], json!(null));
    }

    #[test]
    fn pages_follow_each_other() {
        let items = || ["a", "b", "c"].map(|name| json!({"name": name})).to_vec();
        let ask =
            |limit, after: Option<&str>| page(items(), "name", &Page { limit, after: after.map(str::to_owned) }).0;
        assert_eq!(ask(None, None)["next"], json!(null));
        assert_eq!(ask(Some(2), None), json!({"items": [{"name": "a"}, {"name": "b"}], "next": "b"}));
        assert_eq!(ask(Some(2), Some("b")), json!({"items": [{"name": "c"}], "next": null}));
        assert_eq!(ask(Some(3), None)["next"], json!(null));
    }
}
