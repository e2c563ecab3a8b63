//! Completes an upload: the object refers to the contents of its parts, and no bytes are copied.

use s3o_catalog::{CompleteRow, PutRow};
use s3o_model::checksum::{Checksum, Coverage};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::ids::{ContentId, VersionId};
use s3o_model::lifecycle::ScheduledDeletion;
use s3o_model::multipart::{CompletedAnswer, ListedPart, PART_NUMBER_MAX, Part, Upload, UploadState, select_parts};

use super::{UploadRef, joined};
use crate::expiration::NewObject;
use crate::put_object::may_write;
use crate::{Engine, Error};

/// A request to complete an upload.
#[derive(Debug, Clone)]
pub struct CompleteUpload {
    /// Bucket, key and ID of the upload.
    pub target: UploadRef,
    /// Parts in the order of the request.
    pub parts: Vec<ListedPart>,
    /// Condition on the current object of the key.
    pub condition: WriteCondition,
    /// Checksum that the client declares for the object.
    pub checksum: Option<Checksum>,
    /// Checksum type that the client declares (`x-amz-checksum-type`).
    pub coverage: Option<Coverage>,
    /// Size of the object that the client declares (`x-amz-mp-object-size`).
    pub size_bytes: Option<u64>,
}

/// A completed upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// Digest of the MD5s of the parts, and their number.
    pub etag: ETag,
    /// Version of the new object.
    pub version: VersionId,
    /// Checksum of the object, if the upload or its parts have one.
    pub checksum: Option<Checksum>,
    /// When the object expires or a lifecycle rule deletes it.
    pub expiration: Option<ScheduledDeletion>,
}

/// Maximum number of attempts; an attempt fails if a part is replaced during it.
const ATTEMPTS_MAX: usize = 5;

impl Engine {
    /// Completes an upload. A repeated request with the same parts gets the same answer.
    pub async fn complete_upload(&self, complete: CompleteUpload) -> Result<Completed, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.complete(complete).await }).await
    }

    async fn complete(&self, complete: CompleteUpload) -> Result<Completed, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let upload = self.named_upload(&complete.target).await?;
            let outcome = match &upload.state {
                UploadState::Open => self.complete_open(&complete, &upload).await,
                UploadState::Completed(answer) => return self.replay(answer, &complete).await,
                UploadState::Aborted => return Err(Error::NoSuchUpload),
            };
            match outcome {
                // A part was replaced, or a concurrent request closed the upload.
                Err(Error::Conflict | Error::NoSuchUpload) => {}
                // The parts of an upload that another request closed meanwhile may be deleted already.
                Err(Error::Parts(refused)) => {
                    if matches!(self.named_upload(&complete.target).await?.state, UploadState::Open) {
                        return Err(Error::Parts(refused));
                    }
                }
                outcome => return outcome,
            }
        }
        Err(Error::Conflict)
    }

    async fn complete_open(&self, complete: &CompleteUpload, upload: &Upload) -> Result<Completed, Error> {
        let current = self.find(&complete.target.bucket, &complete.target.key).await?;
        may_write(&complete.condition, current.object.as_ref())?;
        let stored = self.catalog.parts(upload.id, 0, PART_NUMBER_MAX as usize).await?;
        let chosen = select_parts(&stored, &complete.parts)?;
        let size_bytes = total_size(&chosen, self.settings().object_bytes_max)?;
        if complete.size_bytes.is_some_and(|declared| declared != size_bytes) {
            return Err(Error::Invalid("the parts do not add up to x-amz-mp-object-size"));
        }
        let declared = complete.coverage.or(complete.checksum.as_ref().map(|checksum| checksum.coverage));
        let checksum = joined::checksum(upload.checksum.or_else(|| joined::implied(&chosen, declared)), &chosen)?;
        check_declared(complete, checksum.as_ref())?;
        let row = PutRow {
            bucket: upload.bucket,
            key: upload.key.clone(),
            version: VersionId::new(self.ids.fresh()),
            size_bytes,
            etag: joined::etag(&chosen),
            checksum,
            attributes: upload.attributes.clone(),
            expiry: upload.expiry,
        };
        self.join(complete, upload, &chosen, row).await
    }

    async fn join(
        &self,
        complete: &CompleteUpload,
        upload: &Upload,
        chosen: &[&Part],
        row: PutRow,
    ) -> Result<Completed, Error> {
        let answer = CompletedAnswer {
            etag: row.etag.clone(),
            version: row.version,
            size_bytes: row.size_bytes,
            checksum: row.checksum.clone(),
            request: joined::fingerprint(&complete.parts),
        };
        let completed = Completed::from_answer(&answer);
        let new = NewObject::of(&row);
        let outcome = self
            .catalog
            .complete_upload(CompleteRow {
                upload: upload.id,
                content: ContentId::new(self.ids.fresh()),
                parts: chosen.iter().map(|part| (part.number, part.content)).collect(),
                row,
                condition: complete.condition.clone(),
                answer,
            })
            .await;
        // If the answer was lost, the next attempt reads from the upload's state whether it was committed.
        let committed = match outcome {
            Err(s3o_catalog::Error::Unknown(_)) => return Err(Error::Conflict),
            outcome => outcome?,
        };
        if committed.displaced || chosen.len() < PART_NUMBER_MAX as usize {
            // Uploaded parts that the request does not list are deleted.
            self.wake_cleanup();
        }
        let expiration = self.expiration_of_new(&complete.target.bucket, &new, committed).await;
        Ok(Completed { expiration, ..completed })
    }

    /// The stored answer, for a client that repeats its request.
    async fn replay(&self, answer: &CompletedAnswer, complete: &CompleteUpload) -> Result<Completed, Error> {
        if answer.request != joined::fingerprint(&complete.parts) {
            return Err(Error::NoSuchUpload);
        }
        let UploadRef { bucket, key, .. } = &complete.target;
        let expiration = self.expiration_of_version(bucket, key, answer.version).await;
        Ok(Completed { expiration, ..Completed::from_answer(answer) })
    }
}

impl Completed {
    fn from_answer(answer: &CompletedAnswer) -> Self {
        let CompletedAnswer { etag, version, checksum, .. } = answer.clone();
        Self { etag, version, checksum, expiration: None }
    }
}

fn total_size(parts: &[&Part], max_bytes: u64) -> Result<u64, Error> {
    let size_bytes = parts.iter().map(|part| part.length).sum();
    if size_bytes > max_bytes { Err(Error::TooLarge { max_bytes }) } else { Ok(size_bytes) }
}

fn check_declared(complete: &CompleteUpload, ours: Option<&Checksum>) -> Result<(), Error> {
    if let (Some(declared), Some(ours)) = (complete.coverage, ours)
        && declared != ours.coverage
    {
        return Err(Error::Invalid("the checksum type is not that of the upload"));
    }
    let Some(theirs) = &complete.checksum else { return Ok(()) };
    match ours {
        Some(ours) if ours.algorithm == theirs.algorithm => {
            // Clients send a composite checksum with or without its number of parts.
            let digest = |value: &str| value.split('-').next().unwrap_or_default().to_owned();
            if digest(&ours.value) == digest(&theirs.value) { Ok(()) } else { Err(Error::ChecksumMismatch("checksum")) }
        }
        Some(_) | None => Err(Error::Invalid("the checksum algorithm is not that of the upload")),
    }
}
