//! Objects in the catalog: resolving, listing, and the units that write and remove their rows.

mod delete;
pub(crate) mod expire;
mod list;
mod resolve;
mod stuck;
mod upsert;

use std::sync::LazyLock;

use async_trait::async_trait;
use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::conditions::WriteCondition;
use s3o_model::content::{Location, Piece};
use s3o_model::etag::{ETag, Md5, Sha256};
use s3o_model::ids::{BucketId, ClaimToken, ContentId};
use s3o_model::listing::{ListPage, ListQuery};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{ListedObject, Object, Tags};

pub(crate) use delete::remove_marked;
#[cfg(test)]
pub(crate) use delete::{MISLED, MISLED_BY_EXPIRY};
pub use expire::{ExpiredObject, Expiries};
pub(crate) use resolve::location;
pub use stuck::{StuckObject, StuckObjects};
pub use upsert::PutRow;
use upsert::insert_object;
pub(crate) use upsert::upsert_object;

use crate::error::{Error, Verdict};
use crate::landed::Landed;
use crate::release::{NONE, Release, Selector};
use crate::sharing::{Becomes, Body, REFER, RUNS_MAX};
use crate::unit::{Answer, Row, Unit, json};
use crate::{Catalog, params};

/// What a bucket name and a key lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The bucket.
    pub bucket: BucketId,
    /// The catalog's clock at that moment.
    pub now: Timestamp,
    /// Which rules were set for the bucket, by their revision, if any were.
    pub rules: Option<i64>,
    /// The object, if there is one that has not expired.
    pub object: Option<Object>,
    /// The object's bytes where they lie in one piece; `None` when they are joined from parts.
    pub whole: Option<WholeContent>,
}

/// Content that lies in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeContent {
    /// Its digest.
    pub md5: Md5,
    /// Its copies, best first.
    pub locations: Vec<Location>,
}

/// A written body that becomes an object.
#[derive(Debug, Clone)]
pub struct CommitPut {
    /// The bytes.
    pub landed: Landed,
    /// The new content.
    pub content: ContentId,
    /// Its digest.
    pub md5: Md5,
    /// Its digest.
    pub sha256: Option<Sha256>,
    /// The bucket that keeps equal content once, if it does.
    pub dedup: Option<BucketId>,
    /// The object's row.
    pub row: PutRow,
    /// When it may be stored.
    pub condition: WriteCondition,
    /// Nothing was there when somebody looked: most likely nothing will be displaced. A hint.
    pub is_first: bool,
}

/// What a write takes to be under its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing, or the unit is run again.
    Empty,
    /// Whatever it is, it is released.
    Any,
}

/// A row that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// When.
    pub last_modified: Timestamp,
    /// Whether it displaced content, or its own bytes were there already, so that there may be bytes to delete.
    pub displaced: bool,
    /// When it ceases to exist.
    pub expires_at: Option<Timestamp>,
    /// Which rules the bucket had then, by their revision, if any were set.
    pub rules: Option<i64>,
}

impl Committed {
    /// What was answered to [`BUCKET_STANDS`] and to the statement that wrote the row.
    pub(crate) fn of(answers: &[Answer], stands: usize, written: usize) -> Result<Self, Error> {
        let row = &answers[written].rows[0];
        Ok(Self {
            last_modified: moment(row, 0)?,
            displaced: row.opt_text(1)?.is_some(),
            expires_at: row.opt_int(2)?.map(Timestamp::from_millis),
            rules: answers[stands].rows[0].opt_int(1)?,
        })
    }
}

/// What is known of objects.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Looks a key up, with what is needed to read it, in one read. `None`: no such bucket.
    async fn resolve(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Option<Resolved>, Error>;

    /// The pieces of joined content from the one that holds byte `from` to byte `before`
    /// (exclusive), at most `limit`.
    async fn pieces(&self, content: ContentId, from: u64, before: u64, limit: usize) -> Result<Vec<Piece>, Error>;

    /// The pieces of joined content with numbers above `after`, and how many there are in all.
    async fn numbered_pieces(&self, content: ContentId, after: u32, limit: usize) -> Result<Numbered, Error>;

    /// One page of a bucket's objects.
    async fn list_objects(&self, bucket: BucketId, query: ListQuery) -> Result<ListPage<ListedObject>, Error>;

    /// Makes a written body visible: its intents become locations, the object's row refers to
    /// them, and what the row referred to before is released. Where the bucket keeps equal content once and has it, the
    /// row refers to that, and the bytes go unless they are better than what is there. Fails as `Fenced` if an intent is
    /// no longer held, `Superseded` if the writer is gone and a later change was acknowledged, `ResolveAgain` if pinned
    /// content has no good copy any more.
    async fn commit_put(&self, put: CommitPut) -> Result<Committed, Error>;

    /// Makes a row that refers to content which is already there. Fails as `ResolveAgain` if that
    /// content was condemned meanwhile.
    async fn commit_copy(&self, row: PutRow, source: ContentId, condition: WriteCondition) -> Result<Committed, Error>;

    /// Removes an object's row and releases its content; `false` if there was none.
    async fn delete_object(
        &self,
        bucket: BucketId,
        key: &ObjectKey,
        if_match: Option<&ETag>,
        token: ClaimToken,
    ) -> Result<bool, Error>;

    /// Removes up to a thousand rows in one unit; the keys that went are returned.
    async fn delete_objects(
        &self,
        bucket: BucketId,
        targets: &[(ObjectKey, Option<ETag>)],
        token: ClaimToken,
    ) -> Result<Vec<ObjectKey>, Error>;

    /// Replaces an object's tags, if it still is this version and has not expired.
    async fn set_object_tags(&self, object: &Object, tags: &Tags) -> Result<(), Error>;
}

/// Pieces by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// The checksum of each, in the same order.
    pub checksums: Vec<Option<s3o_model::checksum::Checksum>>,
    /// How many pieces the content has in all.
    pub count: u32,
}

/// What the row of `$1`, `$2` referred to before this unit wrote it.
pub(crate) static DISPLACED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "objects WHERE bucket_id = $1 AND key = $2 AND prev_content_id IS NOT NULL",
        column: "prev_content_id",
        dying_objects: NONE,
        dying_pieces: NONE,
        dying_parts: NONE,
        dying_pins: NONE,
    })
});

/// Locks the intents of a key, before any content is locked.
pub(crate) const LOCK_INTENTS: &str =
    "SELECT id FROM pending_objects WHERE bucket_id = $1 AND key = $2 ORDER BY id /*lock*/";

/// Tells the reaper that a later change of this key was acknowledged.
pub(crate) const SUPERSEDE: &str = "UPDATE pending_objects SET superseded = 1 \
     WHERE bucket_id = $1 AND key = $2 AND superseded = 0";

/// Which rules a bucket has, if any were set.
macro_rules! rules_of {
    ($bucket:literal) => {
        concat!("CASE WHEN ", $bucket, ".lifecycle IS NULL THEN NULL ELSE ", $bucket, ".lifecycle_revision END")
    };
}
use rules_of;

pub(crate) const BUCKET_STANDS: &str =
    concat!("SELECT id, ", rules_of!("buckets"), " FROM buckets WHERE id = $1 /*share*/");

pub(crate) fn moment(row: &Row, column: usize) -> Result<Timestamp, Error> {
    row.int(column).map(Timestamp::from_millis)
}

#[async_trait]
impl Objects for Catalog {
    async fn resolve(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Option<Resolved>, Error> {
        resolve::resolve(self, bucket, key).await
    }

    async fn pieces(&self, content: ContentId, from: u64, before: u64, limit: usize) -> Result<Vec<Piece>, Error> {
        resolve::pieces(self, content, from, before, limit).await
    }

    async fn numbered_pieces(&self, content: ContentId, after: u32, limit: usize) -> Result<Numbered, Error> {
        resolve::numbered_pieces(self, content, after, limit).await
    }

    async fn list_objects(&self, bucket: BucketId, query: ListQuery) -> Result<ListPage<ListedObject>, Error> {
        list::list(self, bucket, query).await
    }

    async fn commit_put(&self, put: CommitPut) -> Result<Committed, Error> {
        let is_first = put.is_first && !matches!(put.condition, WriteCondition::IfMatch(_));
        let mut there = if is_first { Place::Empty } else { Place::Any };
        for _ in 0..RUNS_MAX {
            let becomes = self.becomes(&put.landed, &put.body()).await?;
            match self.commit_as(&put, becomes, there).await {
                // Somebody was faster, or something that has expired is there.
                Err(Error::Guard(Verdict::RunAgain)) => there = Place::Any,
                // The content was condemned, or somebody made it first.
                Err(Error::Guard(Verdict::ResolveAgain)) if !becomes.is_pinned() => {}
                done => return done,
            }
        }
        self.commit_as(&put, Becomes::Fresh(None), Place::Any).await
    }

    async fn commit_copy(&self, row: PutRow, source: ContentId, condition: WriteCondition) -> Result<Committed, Error> {
        let place = params![row.bucket, &row.key];
        let mut unit = Unit::new("commit_copy");
        let stands = unit.one(BUCKET_STANDS, place.clone(), Verdict::NoSuchBucket);
        unit.one("SELECT id FROM contents WHERE id = $1 AND state = 'live'", params![source], Verdict::ResolveAgain);
        let written = upsert_object(&mut unit, &row, source, &condition);
        unit.lock(LOCK_INTENTS, place.clone());
        unit.lock(
            "SELECT id FROM contents WHERE id = $3 OR id = \
             (SELECT prev_content_id FROM objects WHERE bucket_id = $1 AND key = $2) ORDER BY id /*lock*/",
            params![row.bucket, &row.key, source],
        );
        // Acquire before release: a copy onto itself must not touch zero.
        unit.one(REFER, params![source], Verdict::ResolveAgain);
        DISPLACED.add_to(&mut unit, &place, Reason::Overwrite);
        unit.run(SUPERSEDE, place);
        Committed::of(&self.write(unit).await?, stands, written)
    }

    async fn delete_object(
        &self,
        bucket: BucketId,
        key: &ObjectKey,
        if_match: Option<&ETag>,
        token: ClaimToken,
    ) -> Result<bool, Error> {
        delete::delete_one(self, bucket, key, if_match, token).await
    }

    async fn delete_objects(
        &self,
        bucket: BucketId,
        targets: &[(ObjectKey, Option<ETag>)],
        token: ClaimToken,
    ) -> Result<Vec<ObjectKey>, Error> {
        delete::delete_many(self, bucket, targets, token).await
    }

    async fn set_object_tags(&self, object: &Object, tags: &Tags) -> Result<(), Error> {
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

impl CommitPut {
    fn body(&self) -> Body {
        let Self { content, md5, sha256, dedup, row, .. } = self;
        Body { fresh: *content, dedup: *dedup, sha256: *sha256, md5: *md5, size_bytes: row.size_bytes }
    }
}

impl Catalog {
    async fn commit_as(&self, put: &CommitPut, becomes: Becomes, there: Place) -> Result<Committed, Error> {
        let place = params![put.row.bucket, &put.row.key];
        let (body, landed) = (put.body(), &put.landed);
        let content = becomes.content(&body);
        let mut unit = Unit::new("commit_put");
        let stands = unit.one(BUCKET_STANDS, place.clone(), Verdict::NoSuchBucket);
        becomes.appear(&mut unit, &body);
        let written = match there {
            Place::Empty => insert_object(&mut unit, &put.row, content),
            Place::Any => upsert_object(&mut unit, &put.row, content, &put.condition),
        };
        unit.lock(LOCK_INTENTS, place.clone());
        landed.hold(&mut unit);
        if there == Place::Any || !becomes.is_fresh() {
            becomes.acquire(&mut unit, &DISPLACED, &place);
        }
        becomes.settle(&mut unit, landed, &body, (&DISPLACED, &place));
        if there == Place::Any {
            DISPLACED.enter(&mut unit, &place, Some(content), None);
            DISPLACED.add_to(&mut unit, &place, Reason::Overwrite);
        }
        unit.run(SUPERSEDE, place);
        becomes.book(&mut unit, landed, &body);
        let committed = Committed::of(&self.write(unit).await?, stands, written)?;
        Ok(Committed { displaced: committed.displaced || !becomes.is_fresh(), ..committed })
    }
}
