//! Objects: resolving, listing, and the units that write and delete their rows.

mod delete;
pub(crate) mod expire;
mod list;
mod resolve;
mod stuck;
mod upsert;

use std::sync::LazyLock;

use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::conditions::WriteCondition;
use s3o_model::content::{Piece, ReadableCopy};
use s3o_model::etag::{ETag, Md5, Sha256};
use s3o_model::ids::{BucketId, ClaimToken, ContentId};
use s3o_model::listing::{ListPage, ListQuery};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{ListedObject, Object, Tags};

pub use delete::ObjectToDelete;
pub(crate) use delete::delete_marked;
#[cfg(test)]
pub(crate) use delete::{ROWS_NOT_DUE, ROWS_NOT_EXPIRED};
pub use expire::ExpiredObject;
pub(crate) use resolve::{TRUST, attributes, location, readable_copy};
pub use stuck::StuckObject;
pub use upsert::PutRow;
pub(crate) use upsert::{insert_object, upsert_object};

use crate::commits::{ContentPlan, NewBytes, Referrer, commit};
use crate::copies::note_raised_factor;
use crate::error::{Error, Verdict};
use crate::release::{DELETES_NOTHING, Release, Selector};
use crate::sharing::{ADD_REFERENCE_OF_BUCKET, IS_LIVE};
use crate::stored_bytes::StoredBytes;
use crate::unit::{Answer, LockRank, Unit, json};
use crate::{Catalog, params};

/// The result of resolving a bucket name and a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Exists, also if the object does not.
    pub bucket: BucketId,
    /// The catalog's clock when the row was read.
    pub now: Timestamp,
    /// Revision of the bucket's lifecycle configuration; `None` if it has none.
    pub rules: Option<i64>,
    /// `None` if the key has no object, or one that has expired.
    pub object: Option<Object>,
    /// `None` for joined content, whose pieces are read separately.
    pub whole: Option<WholeContent>,
}

/// Content that is complete at each of its locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeContent {
    /// Digest of all bytes.
    pub md5: Md5,
    /// Copies that are not lost; those in state `present` come first.
    pub copies: Vec<ReadableCopy>,
}

/// A written body that becomes an object.
#[derive(Debug, Clone)]
pub struct CommitPut {
    /// What holds the bytes until this commit.
    pub stored: StoredBytes,
    /// ID of the content that they become if the plan is [`ContentPlan::Fresh`].
    pub content: ContentId,
    /// Digest of the bytes, stored with fresh content.
    pub md5: Md5,
    /// Digest of the bytes; later writes of a deduplicating bucket find the content by it.
    pub sha256: Option<Sha256>,
    /// Which content the row refers to.
    pub plan: ContentPlan,
    /// The object's row.
    pub row: PutRow,
    /// Fails as `PreconditionFailed` if the current row does not satisfy it.
    pub condition: WriteCondition,
    /// Hint from the earlier lookup: the key was free, so this commit probably replaces nothing.
    pub is_first: bool,
    /// Hint: the factor of the bucket by the configuration of this instance. A commit of fresh content fails as
    /// `ResolveAgain` if the factor is higher than this and the number of copies.
    pub factor: usize,
}

/// A row that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// In whole seconds, like S3.
    pub last_modified: Timestamp,
    /// True if the commit may have queued bytes for deletion: it replaced an object, or joined existing content.
    pub displaced: bool,
    /// `None` if the object does not expire.
    pub expires_at: Option<Timestamp>,
    /// Revision of the bucket's lifecycle configuration at that time; `None` if it had none.
    pub rules: Option<i64>,
}

impl Committed {
    /// Reads the answers at two indexes: that of [`BUCKET_STANDS`] and that of the statement that wrote the row.
    pub(crate) fn of(answers: &[Answer], stands: usize, written: usize) -> Result<Self, Error> {
        let row = &answers[written].rows[0];
        Ok(Self {
            last_modified: row.time("last_modified")?,
            displaced: row.opt_text("prev_content_id")?.is_some(),
            expires_at: row.opt_time("expires_at")?,
            rules: answers[stands].rows[0].opt_int("rules")?,
        })
    }
}

/// A page of pieces with their checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// Ordered by number.
    pub pieces: Vec<Piece>,
    /// The checksum of each piece, in the same order.
    pub checksums: Vec<Option<s3o_model::checksum::Checksum>>,
    /// Number of all pieces of the content.
    pub count: u32,
}

/// What the row of `$1`, `$2` referred to before this unit wrote it.
pub(crate) static DISPLACED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "objects WHERE bucket_id = $1 AND key = $2 AND prev_content_id IS NOT NULL",
        column: "prev_content_id",
        ..DELETES_NOTHING
    })
});

/// Locks the intents of a key, before any content is locked.
pub(crate) const LOCK_INTENTS: &str =
    "SELECT id FROM pending_objects WHERE bucket_id = $1 AND key = $2 ORDER BY id /*lock*/";

/// Marks the intents of a key, so that the reaper does not promote them over a later acknowledged change.
pub(crate) const SUPERSEDE: &str = "UPDATE pending_objects SET superseded = 1 \
     WHERE bucket_id = $1 AND key = $2 AND superseded = 0";

/// Returns bucket `$1` with the revision of its lifecycle configuration, and keeps the bucket until the unit ends.
pub(crate) const BUCKET_STANDS: &str = "SELECT id, \
     CASE WHEN lifecycle IS NULL THEN NULL ELSE lifecycle_revision END AS rules FROM buckets WHERE id = $1 /*share*/";

impl Catalog {
    /// Resolves a key, with what is needed to read the object, in one query. `None`: no such bucket.
    pub async fn resolve(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Option<Resolved>, Error> {
        resolve::resolve(self, bucket, key).await
    }

    /// The pieces of joined content from the one that contains byte `from` to byte `before` (exclusive), at most
    /// `limit`.
    pub async fn pieces(&self, content: ContentId, from: u64, before: u64, limit: usize) -> Result<Vec<Piece>, Error> {
        resolve::pieces(self, content, from, before, limit).await
    }

    /// The pieces of joined content with numbers above `after`, at most `limit`, and the number of all pieces.
    pub async fn numbered_pieces(&self, content: ContentId, after: u32, limit: usize) -> Result<Numbered, Error> {
        resolve::numbered_pieces(self, content, after, limit).await
    }

    /// One page of a bucket's objects that have not expired, in byte order of their keys.
    pub async fn list_objects(&self, bucket: BucketId, query: ListQuery) -> Result<ListPage<ListedObject>, Error> {
        list::list(self, bucket, query).await
    }

    /// Makes a written body visible: its intents become locations or cleanups, as the plan says, the object's row
    /// refers to the content, and the content it referred to before is released. Fails as `ResolveAgain` if the plan
    /// no longer holds, `RunAgain` if `is_first` was wrong, `Fenced` if an intent is no longer held, `Superseded` if
    /// the reaper commits and a later change was acknowledged.
    pub async fn commit_put(&self, put: &CommitPut) -> Result<Committed, Error> {
        let CommitPut { stored, content, md5, sha256, plan, row, condition, is_first, factor } = put;
        let expects_free_key = *is_first && !matches!(condition, WriteCondition::IfMatch(_));
        let (content, size_bytes, bucket) = (*content, row.size_bytes, row.bucket);
        let bytes = NewBytes { stored, content, sha256: *sha256, md5: *md5, size_bytes, bucket, factor: *factor };
        let mut unit = Unit::new("commit_put");
        let row = commit(&mut unit, &Referrer::Object { row, condition, expects_free_key }, &bytes, *plan);
        let committed = Committed::of(&self.write(unit).await?, row.parent, row.written)?;
        Ok(Committed { displaced: committed.displaced || !plan.is_fresh(), ..committed })
    }

    /// Writes a row that refers to existing content. Fails as `ResolveAgain` if that content was condemned meanwhile.
    pub async fn commit_copy(
        &self,
        row: PutRow,
        source: ContentId,
        condition: WriteCondition,
    ) -> Result<Committed, Error> {
        let place = params![row.bucket, &row.key];
        let mut unit = Unit::new("commit_copy");
        let stands = unit.at(LockRank::Bucket).one(BUCKET_STANDS, place.clone(), Verdict::NoSuchBucket);
        unit.one(IS_LIVE, params![source], Verdict::ResolveAgain);
        let written = upsert_object(&mut unit, &row, source, &condition);
        unit.lock(LockRank::Intent, LOCK_INTENTS, place.clone());
        DISPLACED.lock_contents_and(&mut unit, &place, source);
        // Acquire before release: a copy onto itself must not reach a count of zero.
        unit.one(ADD_REFERENCE_OF_BUCKET, params![source, row.bucket], Verdict::ResolveAgain);
        DISPLACED.lock_quota_rows(&mut unit, &place, None, None);
        DISPLACED.release(&mut unit, &place, Reason::Overwrite);
        unit.run(SUPERSEDE, place);
        note_raised_factor(&mut unit, source);
        Committed::of(&self.write(unit).await?, stands, written)
    }

    /// Deletes an object's row and releases its content; `false` if there was none.
    pub async fn delete_object(&self, object: &ObjectToDelete<'_>, token: ClaimToken) -> Result<bool, Error> {
        delete::delete_one(self, object, token).await
    }

    /// Deletes up to a thousand rows in one unit; returns the deleted keys.
    pub async fn delete_objects(
        &self,
        bucket: BucketId,
        targets: &[(ObjectKey, Option<ETag>)],
        token: ClaimToken,
    ) -> Result<Vec<ObjectKey>, Error> {
        delete::delete_many(self, bucket, targets, token).await
    }

    /// Replaces an object's tags, if it still is this version and has not expired.
    pub async fn set_object_tags(&self, object: &Object, tags: &Tags) -> Result<(), Error> {
        let mut unit = Unit::new("set_object_tags");
        unit.one(
            "UPDATE objects SET tags = $4 WHERE bucket_id = $1 AND key = $2 AND version_id = $3 \
             AND (expires_at IS NULL OR expires_at > :now)",
            params![object.bucket, &object.key, object.version, json(tags)],
            Verdict::RunAgain,
        );
        self.write(unit).await.map(drop)
    }
}
