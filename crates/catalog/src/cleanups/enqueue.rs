//! The statements that turn rows of other tables into cleanups.

/// SQL that enqueues one cleanup, due now, for each of `rows`: a table and a condition, with columns `backend_name`,
/// `physical_key`, `backend_version`, `size_bytes` and `stripe`. `reason` is an SQL expression.
///
/// `late` is for intents whose write may not have ended: the parameter with the time in milliseconds within which their
/// bytes may still arrive, or NULL. Their column `backend_upload` is copied, so that cleanup aborts the upload.
pub(crate) fn enqueue_cleanups(rows: &str, reason: &str, late: Option<&str>) -> String {
    let (columns, values) = match late {
        Some(late) => (", backend_upload, absent_ok_after", format!(", backend_upload, :now + {late}")),
        None => ("", String::new()),
    };
    enqueue(rows, reason, ":now", (columns, &values))
}

/// The same for copies of live content that readers may still use: the cleanups are due after the time in milliseconds
/// in the parameter `grace`.
pub(crate) fn enqueue_after_grace(rows: &str, reason: &str, grace: &str) -> String {
    enqueue(rows, reason, &format!(":now + {grace}"), ("", ""))
}

fn enqueue(rows: &str, reason: &str, due: &str, (columns, values): (&str, &str)) -> String {
    format!(
        "INSERT INTO cleanup_queue \
         (backend_name, physical_key, backend_version, size_bytes, stripe, reason, due, created_at{columns}) \
         SELECT backend_name, physical_key, backend_version, size_bytes, stripe, {reason}, {due}, :now{values} FROM \
         {rows}"
    )
}
