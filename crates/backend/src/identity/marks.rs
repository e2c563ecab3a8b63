//! Reads the identity object and manages the write-once objects of marks.

use sha2::{Digest as _, Sha256};

use super::{FoundIdentity, IDENTITY_KEY, Identity, Known, MARKS_PREFIX};
use crate::{Backend, DeleteAnswer, DeleteKey, Error};
use s3o_model::etag::hex;

/// Length of a fingerprint.
const HASH_CHARACTERS: usize = 16;
/// Number of mark objects that one raise lists; a raise leaves one behind.
const LISTED_MAX: usize = 100;

/// Key of the object of a mark.
#[must_use]
pub fn mark_key(mark: &str) -> String {
    format!("{MARKS_PREFIX}{mark}")
}

/// Reads the identity object; `None` if none is stored.
pub async fn read_identity(backend: &dyn Backend) -> Result<Option<Identity>, Error> {
    let bytes = backend.read_own(IDENTITY_KEY).await?;
    bytes.map(|bytes| Identity::decode(&bytes)).transpose()
}

/// Hash of what was found on a backend: its identity object, and the key of the newest object if that is missing.
#[must_use]
pub fn fingerprint(found: Option<&Identity>, missing: Option<&str>) -> String {
    let mut digest = Sha256::new();
    if let Some(identity) = found {
        digest.update(identity.encode());
    }
    digest.update([0]);
    digest.update(missing.unwrap_or_default());
    hex(&digest.finalize())[..HASH_CHARACTERS].to_owned()
}

/// Reads the identity object and, if it has an older mark, checks for the object of the current
/// mark.
pub async fn read_found(backend: &dyn Backend, known: &Known) -> Result<FoundIdentity, Error> {
    let identity = read_identity(backend).await?;
    let is_older = identity.as_ref().is_some_and(|identity| known.wrote_earlier(identity));
    let has_current_mark = match &known.current {
        Some(current) if is_older => backend.read_own(&mark_key(current)).await?.is_some(),
        Some(_) | None => false,
    };
    Ok(FoundIdentity { identity, has_current_mark })
}

/// Creates the object of a mark unless it exists: every instance would write the same bytes.
pub async fn create_mark(backend: &dyn Backend, identity: &Identity) -> Result<(), Error> {
    let key = mark_key(&identity.mark);
    match backend.read_own(&key).await? {
        Some(_) => Ok(()),
        None => backend.write_own(&key, identity.encode()).await,
    }
}

/// Deletes the objects of these past marks. Objects of other marks stay.
pub async fn remove_marks(backend: &dyn Backend, past: &[String]) -> Result<(), Error> {
    let page = backend.list(MARKS_PREFIX, None, LISTED_MAX).await?;
    let is_past = |key: &str| key.strip_prefix(MARKS_PREFIX).is_some_and(|mark| past.iter().any(|past| past == mark));
    let keys = page.items.into_iter().map(|item| item.key).filter(|key| is_past(key));
    let targets: Vec<DeleteKey> = keys.map(|key| DeleteKey { key, version_id: None }).collect();
    if targets.is_empty() {
        return Ok(());
    }
    let answers = backend.delete_batch(&targets).await;
    let failed = answers.into_iter().find(|answer| !matches!(answer, DeleteAnswer::Deleted | DeleteAnswer::Absent));
    failed.map_or(Ok(()), |answer| Err(Error::Unknown(format!("an object of an old mark was not deleted: {answer:?}"))))
}
