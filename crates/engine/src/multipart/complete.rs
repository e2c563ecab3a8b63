//! Makes one object of the parts. No byte moves.

use s3o_catalog::{CompleteRow, PutRow};
use s3o_model::checksum::{Checksum, Coverage};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::ids::{ContentId, VersionId};
use s3o_model::lifecycle::Departure;
use s3o_model::multipart::{CompletedAnswer, ListedPart, PART_NUMBER_MAX, Part, Upload, UploadState, select_parts};

use super::{UploadRef, joined};
use crate::departure::Leaving;
use crate::put_object::may_write;
use crate::{Engine, Error};

/// A request to complete an upload.
#[derive(Debug, Clone)]
pub struct CompleteUpload {
    /// The upload.
    pub target: UploadRef,
    /// The parts, as the client lists them.
    pub parts: Vec<ListedPart>,
    /// When the object may be stored.
    pub condition: WriteCondition,
    /// The checksum that the client has for the object.
    pub checksum: Option<Checksum>,
    /// The checksum type that the client states (`x-amz-checksum-type`).
    pub coverage: Option<Coverage>,
    /// The object's length that the client states (`x-amz-mp-object-size`).
    pub size_bytes: Option<u64>,
}

/// A completed upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// The object's `ETag`.
    pub etag: ETag,
    /// The object's version.
    pub version: VersionId,
    /// The object's checksum.
    pub checksum: Option<Checksum>,
    /// When the object goes by itself.
    pub departure: Option<Departure>,
}

/// How often Complete starts over because a part was replaced meanwhile.
const ATTEMPTS_MAX: usize = 5;

impl Engine {
    /// Completes an upload; asked again with the same parts, it answers the same.
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
                // A part was replaced, or another Complete won: look again.
                Err(Error::Conflict | Error::NoSuchUpload) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Conflict)
    }

    async fn complete_open(&self, complete: &CompleteUpload, upload: &Upload) -> Result<Completed, Error> {
        let there = self.find(&complete.target.bucket, &complete.target.key).await?;
        may_write(&complete.condition, there.object.as_ref())?;
        let stored = self.uploads.parts(upload.id, 0, PART_NUMBER_MAX as usize).await?;
        let chosen = select_parts(&stored, &complete.parts)?;
        let size_bytes = total_size(&chosen, self.settings().object_bytes_max)?;
        if complete.size_bytes.is_some_and(|stated| stated != size_bytes) {
            return Err(Error::Invalid("the parts do not add up to x-amz-mp-object-size"));
        }
        let stated = complete.coverage.or(complete.checksum.as_ref().map(|checksum| checksum.coverage));
        let checksum = joined::checksum(upload.checksum.or_else(|| joined::implied(&chosen, stated)), &chosen)?;
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
        let leaving = Leaving::of(&row);
        let outcome = self
            .uploads
            .complete_upload(CompleteRow {
                upload: upload.id,
                content: ContentId::new(self.ids.fresh()),
                parts: chosen.iter().map(|part| (part.number, part.content)).collect(),
                row,
                condition: complete.condition.clone(),
                answer,
            })
            .await;
        // The upload's state tells what became of a commit whose answer was lost.
        let committed = match outcome {
            Err(s3o_catalog::Error::Unknown(_)) => return Err(Error::Conflict),
            outcome => outcome?,
        };
        if committed.displaced || chosen.len() < PART_NUMBER_MAX as usize {
            // Parts that were uploaded and not listed go, too.
            self.ring_for_cleanup();
        }
        let departure = self.departure_of_written(&complete.target.bucket, &leaving, committed).await;
        Ok(Completed { departure, ..completed })
    }

    /// The stored answer, for a client that lost it and asks for the same thing again.
    async fn replay(&self, answer: &CompletedAnswer, complete: &CompleteUpload) -> Result<Completed, Error> {
        if answer.request != joined::fingerprint(&complete.parts) {
            return Err(Error::NoSuchUpload);
        }
        let UploadRef { bucket, key, .. } = &complete.target;
        let departure = self.departure_of_version(bucket, key, answer.version).await;
        Ok(Completed { departure, ..Completed::from_answer(answer) })
    }
}

impl Completed {
    fn from_answer(answer: &CompletedAnswer) -> Self {
        let CompletedAnswer { etag, version, checksum, .. } = answer.clone();
        Self { etag, version, checksum, departure: None }
    }
}

fn total_size(parts: &[&Part], max_bytes: u64) -> Result<u64, Error> {
    let size_bytes = parts.iter().map(|part| part.length).sum();
    if size_bytes > max_bytes { Err(Error::TooLarge { max_bytes }) } else { Ok(size_bytes) }
}

fn check_declared(complete: &CompleteUpload, ours: Option<&Checksum>) -> Result<(), Error> {
    if let (Some(stated), Some(ours)) = (complete.coverage, ours)
        && stated != ours.coverage
    {
        return Err(Error::Invalid("the checksum type is not the upload's"));
    }
    let Some(theirs) = &complete.checksum else { return Ok(()) };
    match ours {
        Some(ours) if ours.algorithm == theirs.algorithm => {
            // Clients send a composite checksum with or without its number of parts.
            let bare = |value: &str| value.split('-').next().unwrap_or_default().to_owned();
            if bare(&ours.value) == bare(&theirs.value) { Ok(()) } else { Err(Error::ChecksumMismatch("checksum")) }
        }
        Some(_) | None => Err(Error::Invalid("the checksum algorithm is not the upload's")),
    }
}
