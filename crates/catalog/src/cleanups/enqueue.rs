//! The statements that turn rows of other tables into cleanups.

/// SQL for the target of a location or an intent: its version, or its key if none is known. A column of the row is
/// named as in the table.
pub(crate) const OBJECT_TARGET: &str = "coalesce('version:' || backend_version, '')";

/// SQL for the target of the upload that an intent recorded.
const UPLOAD_TARGET: &str =
    "CASE backend_upload WHEN '?' THEN 'upload' ELSE 'upload:' || substr(backend_upload, 4) END";

/// SQL that is true if the target in this column is the object under a key or a version of it.
pub(crate) fn is_object(column: &str) -> String {
    format!("({column} = '' OR substr({column}, 1, 8) = 'version:')")
}

/// SQL that enqueues a cleanup, due now, for each of `rows`: a table and a condition, with columns `backend_name`,
/// `physical_key`, `backend_version`, `size_bytes` and `stripe`. `reason` is an SQL expression.
///
/// `late` is for intents whose write may not have ended: the parameter with the time in milliseconds within which their
/// bytes may still arrive, or NULL. An upload that they recorded becomes a cleanup of its own, of zero bytes.
pub(crate) fn enqueue_cleanups(rows: &str, reason: &str, late: Option<&str>) -> String {
    let Some(late) = late else { return enqueue(rows, reason, ":now") };
    let select = |target: &str, size: &str, rows: &str| {
        format!(
            "SELECT backend_name, physical_key, {target}, {size}, stripe, {reason}, :now, :now, :now + {late} \
             FROM {rows}"
        )
    };
    let object = select(OBJECT_TARGET, "size_bytes", rows);
    let upload = select(UPLOAD_TARGET, "0", &format!("{rows} AND backend_upload IS NOT NULL"));
    format!(
        "INSERT INTO cleanup_queue \
         (backend_name, physical_key, target, size_bytes, stripe, reason, due, created_at, absent_ok_after) \
         {object} UNION ALL {upload}"
    )
}

/// The same for copies of live content that readers may still use: the cleanups are due after the time in milliseconds
/// in the parameter `grace`.
pub(crate) fn enqueue_after_grace(rows: &str, reason: &str, grace: &str) -> String {
    enqueue(rows, reason, &format!(":now + {grace}"))
}

fn enqueue(rows: &str, reason: &str, due: &str) -> String {
    format!(
        "INSERT INTO cleanup_queue (backend_name, physical_key, target, size_bytes, stripe, reason, due, created_at) \
         SELECT backend_name, physical_key, {OBJECT_TARGET}, size_bytes, stripe, {reason}, {due}, :now FROM {rows}"
    )
}
