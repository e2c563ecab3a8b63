//! Multipart uploads in the catalog. Writers of parts hold their upload open; Complete and Abort
//! change its state by compare-and-set, so exactly one of them wins.

mod rows;
mod stale;

use std::sync::LazyLock;

use async_trait::async_trait;
use s3o_model::checksum::Checksum;
use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::{BucketId, ContentId, UploadId};
use s3o_model::multipart::{CompletedAnswer, Part, Upload};
use s3o_model::object::Attributes;

use crate::error::{Error, Verdict};
use crate::landed::Landed;
use crate::objects::{BUCKET_STANDS, Committed, DISPLACED, LOCK_INTENTS, SUPERSEDE, moment, upsert_object};
use crate::release::{NONE, Release, Selector};
use crate::sharing::{Becomes, Body, IS_LIVE, RUNS_MAX};
use crate::unit::{Unit, json};
use crate::{Catalog, PutRow, params};

pub use stale::{StaleUpload, StaleUploads};
pub(crate) use stale::{close, held_bytes};

/// The bytes of a part.
#[derive(Debug, Clone)]
pub enum PartSource {
    /// They were just written.
    Written {
        /// The bytes.
        landed: Landed,
        /// The digest.
        sha256: Option<Sha256>,
        /// The bucket that keeps equal content once, if it does.
        dedup: Option<BucketId>,
    },
    /// They lie in content that is already there.
    Range {
        /// Where they begin in it.
        offset: u64,
    },
}

/// A part that becomes part of its upload.
#[derive(Debug, Clone)]
pub struct CommitPart {
    /// The upload.
    pub upload: UploadId,
    /// The part's number.
    pub number: u32,
    /// The content that holds the bytes.
    pub content: ContentId,
    /// How many bytes.
    pub length: u64,
    /// Their digest.
    pub md5: Md5,
    /// Their checksum.
    pub checksum: Option<Checksum>,
    /// Where they come from.
    pub source: PartSource,
}

/// An upload that becomes an object.
#[derive(Debug, Clone)]
pub struct CompleteRow {
    /// The upload.
    pub upload: UploadId,
    /// The joined content to make.
    pub content: ContentId,
    /// The parts it is made of, by number, with the contents they had when they were checked.
    pub parts: Vec<(u32, ContentId)>,
    /// The object's row.
    pub row: PutRow,
    /// When it may be stored.
    pub condition: WriteCondition,
    /// What the client is told, now and when it asks again.
    pub answer: CompletedAnswer,
}

/// What is known of uploads.
#[async_trait]
pub trait Uploads: Send + Sync {
    /// Opens an upload.
    async fn create_upload(&self, upload: &Upload) -> Result<Timestamp, Error>;

    /// One upload, whatever its state.
    async fn upload(&self, id: UploadId) -> Result<Option<Upload>, Error>;

    /// The parts of an upload with numbers above `after`, at most `limit`.
    async fn parts(&self, id: UploadId, after: u32, limit: usize) -> Result<Vec<Part>, Error>;

    /// Open uploads of a bucket from (key, id) on, exclusive, whose keys start with `prefix`.
    async fn open_uploads(
        &self,
        bucket: BucketId,
        prefix: &str,
        after: (&str, &str),
        limit: usize,
    ) -> Result<Vec<Upload>, Error>;

    /// Puts a part in its place; what it displaced is released.
    async fn commit_part(&self, part: CommitPart) -> Result<Timestamp, Error>;

    /// Makes one object of the parts. Parts that are not listed stay with the closed upload, for
    /// cleanup. Fails as `NoSuchUpload` if it is not open, `RunAgain` if a part was replaced.
    async fn complete_upload(&self, complete: CompleteRow) -> Result<Committed, Error>;

    /// Closes an open upload. Fails as `NoSuchUpload`.
    async fn abort_upload(&self, id: UploadId) -> Result<(), Error>;
}

/// What part `$2` of upload `$1` referred to before this unit wrote it.
static DISPLACED_PART: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "multipart_parts WHERE upload_id = $1 AND number = $2 AND prev_content_id IS NOT NULL",
        column: "prev_content_id",
        dying_objects: NONE,
        dying_pieces: NONE,
        dying_parts: NONE,
        dying_pins: NONE,
    })
});

const HOLD_OPEN: &str = "SELECT id FROM multipart_uploads WHERE id = $1 AND state = 'open' /*share*/";

const UPSERT_PART: &str = "INSERT INTO multipart_parts \
     (upload_id, number, content_id, byte_offset, length, md5, checksum, last_modified) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, :now / 1000 * 1000) \
     ON CONFLICT (upload_id, number) DO UPDATE SET prev_content_id = multipart_parts.content_id, \
     content_id = excluded.content_id, byte_offset = excluded.byte_offset, length = excluded.length, md5 = excluded.md5, \
     checksum = excluded.checksum, last_modified = excluded.last_modified RETURNING last_modified";

fn upsert_part(unit: &mut Unit, part: &CommitPart, content: ContentId, offset: u64) -> usize {
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

#[async_trait]
impl Uploads for Catalog {
    async fn create_upload(&self, upload: &Upload) -> Result<Timestamp, Error> {
        let Attributes { headers, metadata, tags } = &upload.attributes;
        let mut unit = Unit::new("create_upload");
        unit.one(BUCKET_STANDS, params![upload.bucket], Verdict::NoSuchBucket);
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
        moment(&self.write(unit).await?[created].rows[0], 0)
    }

    async fn upload(&self, id: UploadId) -> Result<Option<Upload>, Error> {
        self.read(rows::ONE_UPLOAD, params![id]).await?.first().map(rows::upload).transpose()
    }

    async fn parts(&self, id: UploadId, after: u32, limit: usize) -> Result<Vec<Part>, Error> {
        self.read(rows::PARTS, params![id, after, limit]).await?.iter().map(rows::part).collect()
    }

    async fn open_uploads(
        &self,
        bucket: BucketId,
        prefix: &str,
        after: (&str, &str),
        limit: usize,
    ) -> Result<Vec<Upload>, Error> {
        let (key, id) = after;
        let from = if key < prefix { (prefix, "") } else { (key, id) };
        let mut values = params![bucket, from.0, from.1, limit];
        let sql = match s3o_model::listing::successor(prefix) {
            Some(before) => {
                values.extend(params![before]);
                rows::OPEN_UPLOADS_BEFORE
            }
            None => rows::OPEN_UPLOADS,
        };
        self.read(sql, values).await?.iter().map(rows::upload).collect()
    }

    async fn commit_part(&self, part: CommitPart) -> Result<Timestamp, Error> {
        match &part.source {
            PartSource::Written { landed, sha256, dedup } => {
                let (md5, size_bytes) = (part.md5, part.length);
                let body = Body { fresh: part.content, dedup: *dedup, sha256: *sha256, md5, size_bytes };
                self.commit_written(&part, landed, &body).await
            }
            PartSource::Range { offset } => self.commit_range(&part, *offset).await,
        }
    }

    async fn complete_upload(&self, complete: CompleteRow) -> Result<Committed, Error> {
        let row = &complete.row;
        let place = params![row.bucket, &row.key];
        let count = complete.parts.len();
        let list = json(&complete.parts);
        let mut unit = Unit::new("complete_upload");
        let stands = unit.one(BUCKET_STANDS, place.clone(), Verdict::NoSuchBucket);
        unit.one(
            "UPDATE multipart_uploads SET state = 'completed', answer = $2, closed_at = :now \
             WHERE id = $1 AND state = 'open'",
            params![complete.upload, json(&complete.answer)],
            Verdict::NoSuchUpload,
        );
        unit.run(
            "INSERT INTO contents (id, kind, size_bytes, ref_count) VALUES ($1, 'joined', $2, 1)",
            params![complete.content, row.size_bytes],
        );
        let written = upsert_object(&mut unit, row, complete.content, &complete.condition);
        unit.lock(LOCK_INTENTS, place.clone());
        DISPLACED.lock(&mut unit, &place);
        // References move from the parts to the pieces: no count changes.
        let listed = params![complete.upload, complete.content, &list];
        unit.exactly(count, rows::JOIN_PARTS, listed, Verdict::RunAgain);
        unit.exactly(count, rows::TAKE_PARTS, params![complete.upload, &list], Verdict::RunAgain);
        unit.run(rows::NOTE_LEFTOVER, params![complete.upload]);
        DISPLACED.add_to(&mut unit, &place, Reason::Overwrite);
        unit.run(SUPERSEDE, place);
        Committed::of(&self.write(unit).await?, stands, written)
    }

    async fn abort_upload(&self, id: UploadId) -> Result<(), Error> {
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

impl Catalog {
    async fn commit_written(&self, part: &CommitPart, landed: &Landed, body: &Body) -> Result<Timestamp, Error> {
        for _ in 0..RUNS_MAX {
            let becomes = self.becomes(landed, body).await?;
            match self.commit_part_as(part, landed, body, becomes).await {
                // The content was condemned, or somebody made it first.
                Err(Error::Guard(Verdict::ResolveAgain)) if !becomes.is_pinned() => {}
                done => return done,
            }
        }
        self.commit_part_as(part, landed, body, Becomes::Fresh(None)).await
    }

    async fn commit_part_as(
        &self,
        part: &CommitPart,
        landed: &Landed,
        body: &Body,
        becomes: Becomes,
    ) -> Result<Timestamp, Error> {
        let (place, content) = (params![part.upload, part.number], becomes.content(body));
        let mut unit = Unit::new("commit_part");
        unit.one(HOLD_OPEN, params![part.upload], Verdict::NoSuchUpload);
        becomes.appear(&mut unit, body);
        let written = upsert_part(&mut unit, part, content, 0);
        landed.hold(&mut unit);
        becomes.acquire(&mut unit, &DISPLACED_PART, &place);
        becomes.settle(&mut unit, landed, body, (&DISPLACED_PART, &place));
        DISPLACED_PART.enter(&mut unit, &place, Some(content), None);
        DISPLACED_PART.add_to(&mut unit, &place, Reason::Multipart);
        becomes.book(&mut unit, landed, body);
        moment(&self.write(unit).await?[written].rows[0], 0)
    }

    /// A part refers to content that is already there.
    async fn commit_range(&self, part: &CommitPart, offset: u64) -> Result<Timestamp, Error> {
        let (place, becomes) = (params![part.upload, part.number], Becomes::Joined(part.content));
        let mut unit = Unit::new("commit_part");
        unit.one(HOLD_OPEN, params![part.upload], Verdict::NoSuchUpload);
        unit.one(IS_LIVE, params![part.content], Verdict::ResolveAgain);
        let written = upsert_part(&mut unit, part, part.content, offset);
        becomes.acquire(&mut unit, &DISPLACED_PART, &place);
        DISPLACED_PART.add_to(&mut unit, &place, Reason::Multipart);
        moment(&self.write(unit).await?[written].rows[0], 0)
    }
}
