//! Multipart uploads. Writers of parts share-lock their open upload; Complete and Abort change its state by
//! compare-and-set, so exactly one of them wins.

mod rows;
mod stale;

use std::sync::LazyLock;

use s3o_model::checksum::Checksum;
use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::{BucketId, ContentId, UploadId};
use s3o_model::multipart::{CompletedAnswer, Part, Upload};
use s3o_model::object::Attributes;

use crate::commits::{ContentPlan, NewBytes, Referrer, commit};
use crate::copies::note_raised_factor;
use crate::error::{Error, Verdict};
use crate::objects::{BUCKET_STANDS, Committed, DISPLACED, LOCK_INTENTS, SUPERSEDE, upsert_object};
use crate::release::{DELETES_NOTHING, Release, Selector};
use crate::sharing::{ADD_REFERENCE_OF_BUCKET, IS_LIVE};
use crate::stored_bytes::StoredBytes;
use crate::unit::{LockRank, Unit, json};
use crate::{Catalog, PutRow, params};

pub use stale::StaleUpload;
pub(crate) use stale::{close, held_bytes};

/// The bytes of a part.
#[derive(Debug, Clone)]
pub enum PartSource {
    /// Bytes that were just written.
    Written {
        /// What holds the bytes until this commit.
        stored: StoredBytes,
        /// Digest of the bytes; later writes of a deduplicating bucket find the content by it.
        sha256: Option<Sha256>,
        /// Which content the part refers to.
        plan: ContentPlan,
    },
    /// A range of existing content.
    Range {
        /// First byte of the range in the content.
        offset: u64,
    },
}

/// A part to add to its upload, or to replace there.
#[derive(Debug, Clone)]
pub struct CommitPart {
    /// The commit fails as `NoSuchUpload` if it is not open.
    pub upload: UploadId,
    /// Bucket of the upload.
    pub bucket: BucketId,
    /// Hint: the factor of the bucket by the configuration of this instance.
    pub factor: usize,
    /// From 1 to 10000.
    pub number: u32,
    /// Existing content of a range, or the ID of the content that written bytes become under [`ContentPlan::Fresh`].
    pub content: ContentId,
    /// In bytes.
    pub length: u64,
    /// Digest of the part.
    pub md5: Md5,
    /// Checksum that the client declared or asked for.
    pub checksum: Option<Checksum>,
    /// Written bytes or a range of existing content.
    pub source: PartSource,
}

impl CommitPart {
    /// Replaces the plan; a part that refers to a range has none.
    pub fn set_plan(&mut self, new: ContentPlan) {
        if let PartSource::Written { plan, .. } = &mut self.source {
            *plan = new;
        }
    }
}

/// An upload that becomes an object.
#[derive(Debug, Clone)]
pub struct CompleteRow {
    /// The commit fails as `NoSuchUpload` if it is not open.
    pub upload: UploadId,
    /// ID of the new joined content.
    pub content: ContentId,
    /// Numbers of the listed parts, ascending, with the contents they had when the caller checked them.
    pub parts: Vec<(u32, ContentId)>,
    /// The object's row.
    pub row: PutRow,
    /// Fails as `PreconditionFailed` if the current row does not satisfy it.
    pub condition: WriteCondition,
    /// Stored for repetitions of the request.
    pub answer: CompletedAnswer,
}

/// What part `$2` of upload `$1` referred to before this unit wrote it.
pub(crate) static DISPLACED_PART: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "multipart_parts WHERE upload_id = $1 AND number = $2 AND prev_content_id IS NOT NULL",
        column: "prev_content_id",
        ..DELETES_NOTHING
    })
});

pub(crate) const HOLD_OPEN: &str = "SELECT id FROM multipart_uploads WHERE id = $1 AND state = 'open' /*share*/";

const UPSERT_PART: &str = "INSERT INTO multipart_parts \
     (upload_id, number, content_id, byte_offset, length, md5, checksum, last_modified) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, :now / 1000 * 1000) \
     ON CONFLICT (upload_id, number) DO UPDATE SET prev_content_id = multipart_parts.content_id, \
     content_id = excluded.content_id, byte_offset = excluded.byte_offset, length = excluded.length, md5 = \
     excluded.md5, checksum = excluded.checksum, last_modified = excluded.last_modified RETURNING last_modified";

pub(crate) fn upsert_part(unit: &mut Unit, part: &CommitPart, content: ContentId, offset: u64) -> usize {
    unit.run(
        UPSERT_PART,
        params![
            part.upload,
            part.number,
            content,
            offset,
            part.length,
            part.md5.to_string(),
            part.checksum.as_ref().map(json),
        ],
    )
}

impl Catalog {
    /// Opens an upload and returns its creation time. Fails as `NoSuchBucket`.
    pub async fn create_upload(&self, upload: &Upload) -> Result<Timestamp, Error> {
        let Attributes { headers, metadata, tags } = &upload.attributes;
        let mut unit = Unit::new("create_upload");
        unit.at(LockRank::Bucket).one(BUCKET_STANDS, params![upload.bucket], Verdict::NoSuchBucket);
        let created = unit.run(
            "INSERT INTO multipart_uploads (id, bucket_id, key, headers, metadata, tags, checksum, expiry, \
             created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, :now / 1000 * 1000) RETURNING created_at",
            params![
                upload.id,
                upload.bucket,
                &upload.key,
                json(headers),
                json(metadata),
                json(tags),
                upload.checksum.as_ref().map(json),
                upload.expiry.as_ref().map(json),
            ],
        );
        self.write(unit).await?[created].rows[0].time("created_at")
    }

    /// An upload in any state; `None` if it never existed or was deleted after it was closed.
    pub async fn upload(&self, id: UploadId) -> Result<Option<Upload>, Error> {
        self.read(&rows::ONE_UPLOAD, params![id]).await?.first().map(rows::upload).transpose()
    }

    /// The parts of an upload with numbers above `after`, at most `limit`.
    pub async fn parts(&self, id: UploadId, after: u32, limit: usize) -> Result<Vec<Part>, Error> {
        self.read(rows::PARTS, params![id, after, limit]).await?.iter().map(rows::part).collect()
    }

    /// Open uploads of a bucket from (key, id) on, exclusive, whose keys start with `prefix`.
    pub async fn open_uploads(
        &self,
        bucket: BucketId,
        prefix: &str,
        after: (&str, &str),
        limit: usize,
    ) -> Result<Vec<Upload>, Error> {
        let (key, id) = after;
        let from = if key < prefix { (prefix, "") } else { (key, id) };
        let mut values = params![bucket, from.0, from.1, limit];
        let sql: &'static str = match s3o_model::listing::successor(prefix) {
            Some(before) => {
                values.extend(params![before]);
                &rows::OPEN_UPLOADS_BEFORE
            }
            None => &rows::OPEN_UPLOADS,
        };
        self.read(sql, values).await?.iter().map(rows::upload).collect()
    }

    /// Writes a part's row and releases the content it referred to before. Fails as `ResolveAgain` if the plan no
    /// longer holds or the source of a range is condemned, `Fenced` if an intent is no longer held.
    pub async fn commit_part(&self, part: &CommitPart) -> Result<Timestamp, Error> {
        let mut unit = Unit::new("commit_part");
        let written = match &part.source {
            PartSource::Written { stored, sha256, plan } => {
                let CommitPart { content, md5, length: size_bytes, bucket, factor, .. } = *part;
                let bytes = NewBytes { stored, content, sha256: *sha256, md5, size_bytes, bucket, factor };
                commit(&mut unit, &Referrer::Part(part), &bytes, *plan).written
            }
            PartSource::Range { offset } => commit_range(&mut unit, part, *offset),
        };
        self.write(unit).await?[written].rows[0].time("last_modified")
    }

    /// Makes one object of the parts. Parts that are not listed stay with the closed upload, for
    /// cleanup. Fails as `NoSuchUpload` if it is not open, `RunAgain` if a part was replaced.
    pub async fn complete_upload(&self, complete: CompleteRow) -> Result<Committed, Error> {
        let row = &complete.row;
        let place = params![row.bucket, &row.key];
        let count = complete.parts.len();
        let list = json(&complete.parts);
        let mut unit = Unit::new("complete_upload");
        let stands = unit.at(LockRank::Bucket).one(BUCKET_STANDS, place.clone(), Verdict::NoSuchBucket);
        unit.at(LockRank::Upload).one(
            "UPDATE multipart_uploads SET state = 'completed', answer = $2, closed_at = :now \
             WHERE id = $1 AND state = 'open'",
            params![complete.upload, json(&complete.answer)],
            Verdict::NoSuchUpload,
        );
        unit.run(
            "INSERT INTO contents (id, kind, size_bytes, ref_count, factor) VALUES ($1, 'joined', $2, 1, \
             coalesce((SELECT factor FROM buckets WHERE id = $3), 1))",
            params![complete.content, row.size_bytes, row.bucket],
        );
        let written = upsert_object(&mut unit, row, complete.content, &complete.condition);
        unit.lock(LockRank::Intent, LOCK_INTENTS, place.clone());
        DISPLACED.lock_contents(&mut unit, &place);
        // References move from the parts to the pieces: no count changes.
        let listed = params![complete.upload, complete.content, &list];
        unit.exactly(count, rows::JOIN_PARTS, listed, Verdict::RunAgain);
        unit.exactly(count, rows::TAKE_PARTS, params![complete.upload, &list], Verdict::RunAgain);
        unit.run(rows::NOTE_LEFTOVER, params![complete.upload]);
        DISPLACED.lock_quota_rows(&mut unit, &place, None, None);
        DISPLACED.release(&mut unit, &place, Reason::Overwrite);
        unit.run(SUPERSEDE, place);
        Committed::of(&self.write(unit).await?, stands, written)
    }

    /// Closes an open upload. Fails as `NoSuchUpload`.
    pub async fn abort_upload(&self, id: UploadId) -> Result<(), Error> {
        let mut unit = Unit::new("abort_upload");
        unit.one(
            "UPDATE multipart_uploads SET state = 'aborted', closed_at = :now WHERE id = $1 AND state = 'open'",
            params![id],
            Verdict::NoSuchUpload,
        );
        unit.run(rows::NOTE_LEFTOVER, params![id]);
        self.write(unit).await.map(drop)
    }
}

/// Adds the statements that make a part refer to a range of existing content.
fn commit_range(unit: &mut Unit, part: &CommitPart, offset: u64) -> usize {
    let (key, content) = (params![part.upload, part.number], part.content);
    unit.at(LockRank::Upload).one(HOLD_OPEN, params![part.upload], Verdict::NoSuchUpload);
    unit.one(IS_LIVE, params![content], Verdict::ResolveAgain);
    let written = upsert_part(unit, part, content, offset);
    DISPLACED_PART.lock_contents_and(unit, &key, content);
    unit.one(ADD_REFERENCE_OF_BUCKET, params![content, part.bucket], Verdict::ResolveAgain);
    DISPLACED_PART.lock_quota_rows(unit, &key, None, None);
    DISPLACED_PART.release(unit, &key, Reason::Multipart);
    note_raised_factor(unit, content);
    written
}
