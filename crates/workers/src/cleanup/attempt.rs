//! One attempt at claimed cleanups: plain rows in one batch call, the rest one by one.

use std::panic::AssertUnwindSafe;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use s3o_backend::{Backend, DeleteAnswer, Doomed, Probe};
use s3o_model::cleanup::{Attempt, BackendUpload, Cleanup};

/// What became of each cleanup, in their order.
pub(super) async fn all(backend: &dyn Backend, claimed: &[Cleanup], concurrency: usize) -> Vec<Attempt> {
    let (plain, careful): (Vec<_>, Vec<_>) = claimed.iter().enumerate().partition(|(_, row)| is_plain(row));
    let mut attempts = vec![Attempt::Unknown("no answer for this key".to_owned()); claimed.len()];
    if !plain.is_empty() {
        let rows: Vec<&Cleanup> = plain.iter().map(|(_, row)| *row).collect();
        for ((position, _), attempt) in plain.iter().zip(in_one_call(backend, &rows).await) {
            attempts[*position] = attempt;
        }
    }
    let work: Vec<_> = careful.into_iter().map(|(position, row)| numbered(position, backend, row)).collect();
    let done: Vec<_> = futures_util::stream::iter(work).buffer_unordered(concurrency.max(1)).collect().await;
    for (position, attempt) in done {
        attempts[position] = attempt;
    }
    attempts
}

/// A store that answers for fewer keys than it was asked leaves the rest unknown. A row that makes
/// the call panic must not take the others with it, time and again: then each has its own call.
async fn in_one_call(backend: &dyn Backend, rows: &[&Cleanup]) -> Vec<Attempt> {
    let keys: Vec<Doomed> = rows.iter().map(|row| doomed(row)).collect();
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

/// It spends an attempt: a row that is never counted would be tried for ever.
fn panicked() -> Attempt {
    Attempt::Refused("the attempt panicked".to_owned())
}

fn numbered<'a>(position: usize, backend: &'a dyn Backend, row: &'a Cleanup) -> BoxFuture<'a, (usize, Attempt)> {
    Box::pin(async move {
        let attempt = AssertUnwindSafe(one_by_one(backend, row)).catch_unwind().await;
        (position, attempt.unwrap_or_else(|_| panicked()))
    })
}

/// A plain row names bytes that were there; nothing else can appear under its key. Where the backend was accepted
/// since, stores that do not distinguish "deleted" from "was not there" are asked first.
fn is_plain(cleanup: &Cleanup) -> bool {
    cleanup.absent_ok_after.is_none() && cleanup.upload == BackendUpload::None && !cleanup.older_than_accept
}

fn doomed(cleanup: &Cleanup) -> Doomed {
    Doomed { key: cleanup.physical_key.clone(), version_id: cleanup.backend_version.clone() }
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

/// A row whose write had an unknown end: unfinished uploads go first, then what is really there.
async fn one_by_one(backend: &dyn Backend, cleanup: &Cleanup) -> Attempt {
    if let Err(attempt) = abort_uploads(backend, cleanup).await {
        return attempt;
    }
    match backend.probe(&cleanup.physical_key).await {
        Probe::Unknown(why) => Attempt::Unknown(why),
        Probe::Present(_) => delete_one(backend, cleanup).await,
        // Deleting also removes what an unfinished write left beside the key.
        Probe::Absent => match delete_one(backend, cleanup).await {
            Attempt::Deleted | Attempt::Absent => Attempt::Absent,
            other => other,
        },
    }
}

async fn delete_one(backend: &dyn Backend, cleanup: &Cleanup) -> Attempt {
    let answer = backend.delete_batch(&[doomed(cleanup)]).await.into_iter().next();
    answer.map_or_else(|| Attempt::Unknown("no answer for this key".to_owned()), attempt_of)
}

async fn abort_uploads(backend: &dyn Backend, cleanup: &Cleanup) -> Result<(), Attempt> {
    let key = &cleanup.physical_key;
    let uploads = match &cleanup.upload {
        BackendUpload::None => Vec::new(),
        BackendUpload::Started(id) => vec![id.clone()],
        BackendUpload::Starting => {
            backend.uploads_of(key).await.map_err(|error| Attempt::Unknown(error.to_string()))?
        }
    };
    for upload in uploads {
        match attempt_of(backend.abort_upload(key, &upload).await) {
            Attempt::Deleted | Attempt::Absent => {}
            other => return Err(other),
        }
    }
    Ok(())
}
