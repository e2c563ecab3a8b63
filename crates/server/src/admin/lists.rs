//! Lists: `{items, next}`, one page per request. `next` is `after` of the next page; null on the last one.

use serde::{Deserialize, Serialize};

use super::error::AdminError;

/// Items per page unless `limit` says otherwise.
const LIMIT: usize = 100;
/// The most items per page.
const LIMIT_MAX: usize = 1000;

/// Selects a page.
#[derive(Debug, Default, Deserialize)]
pub struct PageQuery {
    pub limit: Option<usize>,
    pub after: Option<String>,
}

/// One page of a list.
#[derive(Debug, Serialize)]
pub struct AdminPage<T> {
    items: Vec<T>,
    next: Option<String>,
}

impl<T> AdminPage<T> {
    /// A page of at most `limit` items. The caller passes one more if there is a next page; `cursor` is the value of
    /// `after` behind an item.
    pub fn new(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> Self {
        let has_next = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_next).map(cursor);
        Self { items, next }
    }

    /// The only page of a list.
    pub fn last(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// The number of items that a page shows.
pub fn limit(wanted: Option<usize>) -> usize {
    wanted.unwrap_or(LIMIT).clamp(1, LIMIT_MAX)
}

/// The row number behind which a page begins; 0 if `after` is absent or empty.
pub fn after_row(after: Option<&str>) -> Result<i64, AdminError> {
    let Some(text) = present(after) else { return Ok(0) };
    text.parse().map_err(|_| AdminError::invalid_query(format!("after: {text:?} is not a whole number")))
}

/// A query parameter; None if it is absent or empty.
pub fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::AdminPage;
    use serde_json::{Value, json};

    fn page(items: &[i64], limit: usize) -> Value {
        serde_json::to_value(AdminPage::new(items.to_vec(), limit, i64::to_string)).unwrap()
    }

    #[test]
    fn next_is_the_cursor_of_the_last_shown_item() {
        assert_eq!(page(&[4, 7], 1), json!({"items": [4], "next": "4"}));
        assert_eq!(page(&[4, 7, 9], 2), json!({"items": [4, 7], "next": "7"}));
    }

    #[test]
    fn next_is_null_on_the_last_page() {
        assert_eq!(page(&[4, 7], 2), json!({"items": [4, 7], "next": null}));
        assert_eq!(page(&[4, 7], 3), json!({"items": [4, 7], "next": null}));
        assert_eq!(page(&[], 1), json!({"items": [], "next": null}));
    }
}
