//! One delete attempt for claimed cleanups: plain rows in one batch call, the others one by one. Each attempt removes
//! the target of its row and nothing else.

use std::panic::AssertUnwindSafe;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use s3o_backend::{Backend, DeleteAnswer, DeleteKey, ExpectedDelete, Probe};
use s3o_model::cleanup::{Attempt, Cleanup};
use s3o_model::target::{ExpectedBytes, KeyVersion, Target};

/// Attempts every cleanup; the results are in the order of `claimed`.
pub(super) async fn all(backend: &dyn Backend, claimed: &[Cleanup], concurrency: usize) -> Vec<Attempt> {
    let (plain, others): (Vec<_>, Vec<_>) = claimed.iter().enumerate().partition(|(_, row)| is_plain(row));
    let mut attempts = vec![Attempt::Unknown("no answer for this key".to_owned()); claimed.len()];
    if !plain.is_empty() {
        let rows: Vec<&Cleanup> = plain.iter().map(|(_, row)| *row).collect();
        for ((position, _), attempt) in plain.iter().zip(delete_in_one_call(backend, &rows).await) {
            attempts[*position] = attempt;
        }
    }
    let work: Vec<_> = others.into_iter().map(|(position, row)| attempt_at(position, backend, row)).collect();
    let done: Vec<_> = futures_util::stream::iter(work).buffer_unordered(concurrency.max(1)).collect().await;
    for (position, attempt) in done {
        attempts[position] = attempt;
    }
    attempts
}

/// Keys that the store does not answer for stay `Unknown`. If the batch call panics, each row is
/// deleted in its own call, so that one panicking row does not block the others in every tick.
async fn delete_in_one_call(backend: &dyn Backend, rows: &[&Cleanup]) -> Vec<Attempt> {
    let keys: Vec<DeleteKey> = rows.iter().map(|row| delete_target(row)).collect();
    match AssertUnwindSafe(backend.delete_batch(&keys)).catch_unwind().await {
        Ok(answers) => answers.into_iter().map(attempt_of).collect(),
        Err(_) if rows.len() == 1 => vec![panicked()],
        Err(_) => {
            let mut attempts = Vec::with_capacity(rows.len());
            for row in rows {
                let alone = AssertUnwindSafe(delete_one(backend, row)).catch_unwind().await;
                attempts.push(alone.unwrap_or_else(|_| panicked()));
            }
            attempts
        }
    }
}

/// A panic counts as a refused attempt; otherwise the row would be retried without limit.
fn panicked() -> Attempt {
    Attempt::Refused("the attempt panicked".to_owned())
}

fn attempt_at<'a>(position: usize, backend: &'a dyn Backend, row: &'a Cleanup) -> BoxFuture<'a, (usize, Attempt)> {
    Box::pin(async move {
        let attempt = AssertUnwindSafe(one_by_one(backend, row)).catch_unwind().await;
        (position, attempt.unwrap_or_else(|_| panicked()))
    })
}

/// A plain row names bytes that were fully written and that only s3o deletes; no late write can appear under its key.
/// A row older than the last accept of its backend is not plain: a probe shows whether its bytes exist, which some
/// deletes do not report.
fn is_plain(cleanup: &Cleanup) -> bool {
    let is_object = matches!(cleanup.target, Target::Key | Target::Version(_) | Target::Draft);
    is_object && cleanup.absent_ok_after.is_none() && cleanup.expected.is_none() && !cleanup.older_than_accept
}

fn delete_target(cleanup: &Cleanup) -> DeleteKey {
    DeleteKey { key: cleanup.physical_key.clone(), version_id: cleanup.target.version_id().map(str::to_owned) }
}

fn attempt_of(answer: DeleteAnswer) -> Attempt {
    match answer {
        DeleteAnswer::Deleted => Attempt::Deleted,
        DeleteAnswer::Absent => Attempt::Absent,
        DeleteAnswer::Away(_) => Attempt::Away,
        DeleteAnswer::Unknown(why) => Attempt::Unknown(why),
        DeleteAnswer::Refused(why) => Attempt::Refused(why),
    }
}

async fn one_by_one(backend: &dyn Backend, cleanup: &Cleanup) -> Attempt {
    match (&cleanup.target, &cleanup.expected) {
        (Target::Upload(upload), _) => attempt_of(backend.abort_upload(&cleanup.physical_key, upload).await),
        (Target::StartingUpload, _) => abort_uploads(backend, &cleanup.physical_key).await,
        (Target::Key | Target::Version(_) | Target::Draft, Some(expected)) => {
            delete_if_expected(backend, cleanup, expected).await
        }
        (Target::Key | Target::Version(_) | Target::Draft, None) => delete_if_present(backend, cleanup).await,
    }
}

/// Deletes a key that other programs may have rewritten.
async fn delete_if_expected(backend: &dyn Backend, cleanup: &Cleanup, expected: &ExpectedBytes) -> Attempt {
    match backend.delete_expected(&delete_target(cleanup), expected).await {
        ExpectedDelete::Answered(answer) => attempt_of(answer),
        ExpectedDelete::Changed(why) => Attempt::Changed(why),
    }
}

/// Deletes after a write with unknown outcome.
async fn delete_if_present(backend: &dyn Backend, cleanup: &Cleanup) -> Attempt {
    let at = KeyVersion::new(&cleanup.physical_key, cleanup.target.version_id());
    match backend.probe(at).await {
        Probe::Unknown(why) => Attempt::Unknown(why),
        Probe::Present(_) => delete_one(backend, cleanup).await,
        // The delete also removes temporary files that an unfinished write left for the key, and the only version of it
        // that a delete marker of another program hides.
        Probe::Absent => match delete_one(backend, cleanup).await {
            Attempt::Deleted | Attempt::Absent => Attempt::Absent,
            other => other,
        },
    }
}

async fn delete_one(backend: &dyn Backend, cleanup: &Cleanup) -> Attempt {
    let answer = backend.delete_batch(&[delete_target(cleanup)]).await.into_iter().next();
    answer.map_or_else(|| Attempt::Unknown("no answer for this key".to_owned()), attempt_of)
}

/// Aborts every unfinished upload of a key: one was started, and its ID may be lost.
async fn abort_uploads(backend: &dyn Backend, key: &str) -> Attempt {
    let uploads = match backend.uploads_of(key).await {
        Ok(uploads) => uploads,
        Err(error) => return Attempt::Unknown(error.to_string()),
    };
    let mut aborted = Attempt::Absent;
    for upload in uploads {
        aborted = match attempt_of(backend.abort_upload(key, &upload).await) {
            done @ (Attempt::Deleted | Attempt::Absent) => done,
            failed @ (Attempt::Away | Attempt::Unknown(_) | Attempt::Refused(_) | Attempt::Changed(_)) => {
                return failed;
            }
        };
    }
    aborted
}

#[cfg(test)]
mod tests;
