//! The statement that turns rows of other tables into cleanups.

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
    format!(
        "INSERT INTO cleanup_queue \
         (backend_name, physical_key, backend_version, size_bytes, stripe, reason, due, created_at{columns}) \
         SELECT backend_name, physical_key, backend_version, size_bytes, stripe, {reason}, :now, :now{values} FROM \
         {rows}"
    )
}
