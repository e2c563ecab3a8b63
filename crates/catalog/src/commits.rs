//! The units that commit written bytes: one list of statements for each [`ContentPlan`], for objects and for parts.
//!
//! A unit locks its rows in the order of [`LockRank`], acquires its reference before it releases another, and changes
//! quota counters last.

use s3o_model::cleanup::Reason;
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::{BucketId, ContentId, WriteId};

use crate::copies::note_work;
use crate::error::Verdict;
use crate::objects::{BUCKET_STANDS, DISPLACED, LOCK_INTENTS, PutRow, SUPERSEDE, insert_object, upsert_object};
use crate::params;
use crate::release::Release;
use crate::sharing::{ADD_REFERENCE, GOOD_COPIES, IS_LIVE, insert_content, place_copies};
use crate::stored_bytes::StoredBytes;
use crate::unit::{LockRank, Unit, Value};
use crate::uploads::{CommitPart, DISPLACED_PART, HOLD_OPEN, upsert_part};

/// Which content a commit makes its row refer to. A commit fails as `ResolveAgain` when its plan no longer holds, or
/// when fresh content needs more copies than the writer assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentPlan {
    /// New content. With a bucket, later writes of that bucket may join it, and the commit fails if the bucket has live
    /// content with the same digest and size.
    Fresh(Option<BucketId>),
    /// One more reference to this content; fails if it is condemned. The written bytes become cleanups, except those
    /// that replace missing or bad copies.
    Joined(ContentId),
    /// The reference of the writer's pin moves to the new row; fails if the content has no good copy any more.
    Pinned(ContentId),
}

/// Written bytes with their size and digests.
pub(crate) struct NewBytes<'a> {
    pub stored: &'a StoredBytes,
    /// ID of the content that they become under [`ContentPlan::Fresh`].
    pub content: ContentId,
    pub sha256: Option<Sha256>,
    pub md5: Md5,
    pub size_bytes: u64,
    /// The bucket whose factor fresh content gets.
    pub bucket: BucketId,
    /// Hint: the factor of the bucket by the configuration of this instance. Fresh content fails as `ResolveAgain` if
    /// the factor is higher than this and the number of copies.
    pub factor: usize,
}

impl NewBytes<'_> {
    /// True if the unit that creates the content notes the copies that it lacks.
    pub(crate) fn notes_work(&self) -> bool {
        self.stored.copies() < self.factor
    }
}

/// The row that is about to refer to the content.
pub(crate) enum Referrer<'a> {
    /// An object. `expects_free_key`: the commit fails as `RunAgain` if the key has a row.
    Object { row: &'a PutRow, condition: &'a WriteCondition, expects_free_key: bool },
    /// A part of an open upload.
    Part(&'a CommitPart),
}

/// Indexes of the answers about the new row.
pub(crate) struct RowAnswers {
    /// The bucket of an object, or the upload of a part.
    pub parent: usize,
    pub written: usize,
}

impl ContentPlan {
    /// True for content that this commit creates.
    pub(crate) fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh(_))
    }
}

/// Adds the statements of the plan.
pub(crate) fn commit(unit: &mut Unit, row: &Referrer<'_>, bytes: &NewBytes<'_>, plan: ContentPlan) -> RowAnswers {
    match plan {
        ContentPlan::Fresh(bucket) => commit_fresh(unit, row, bytes, bucket),
        ContentPlan::Joined(content) => commit_joined(unit, row, bytes, content),
        ContentPlan::Pinned(content) => commit_pinned(unit, row, bytes.stored, content),
    }
}

fn commit_fresh(unit: &mut Unit, row: &Referrer<'_>, bytes: &NewBytes<'_>, bucket: Option<BucketId>) -> RowAnswers {
    let content = bytes.content;
    let parent = row.lock_parent(unit);
    insert_content(unit, bytes, bucket);
    let written = row.write(unit, content);
    row.lock_intents_of_key(unit);
    bytes.stored.lock_intents(unit);
    row.lock_displaced(unit);
    if let Some(write) = bytes.stored.several() {
        row.lock_quota_rows(unit, content, Some(write));
        bytes.stored.enqueue_failed(unit);
    }
    bytes.stored.insert_locations(unit, content);
    row.release_displaced(unit, content);
    row.supersede_intents(unit);
    if bytes.notes_work() {
        note_work(unit, content);
    }
    bytes.stored.charge(unit, content);
    RowAnswers { parent, written }
}

fn commit_joined(unit: &mut Unit, row: &Referrer<'_>, bytes: &NewBytes<'_>, content: ContentId) -> RowAnswers {
    let parent = row.lock_parent(unit);
    unit.one(IS_LIVE, params![content], Verdict::ResolveAgain);
    let written = row.write(unit, content);
    row.lock_intents_of_key(unit);
    bytes.stored.lock_intents(unit);
    row.lock_displaced_and(unit, content);
    unit.one(ADD_REFERENCE, params![content], Verdict::ResolveAgain);
    let write = bytes.stored.announce(unit, bytes.content);
    row.lock_quota_rows(unit, content, Some(write));
    bytes.stored.enqueue_failed(unit);
    place_copies(unit, content, write);
    row.release_displaced(unit, content);
    row.supersede_intents(unit);
    note_work(unit, content);
    RowAnswers { parent, written }
}

fn commit_pinned(unit: &mut Unit, row: &Referrer<'_>, stored: &StoredBytes, content: ContentId) -> RowAnswers {
    let copies = stored.copies_relied_on();
    let parent = row.lock_parent(unit);
    // The pin keeps the content live: condemned content means that the pin was released.
    unit.one(IS_LIVE, params![content], Verdict::Fenced);
    let written = row.write(unit, content);
    row.lock_intents_of_key(unit);
    stored.lock_intents(unit);
    row.lock_displaced_and(unit, content);
    // A reader may have found a copy bad since it was pinned, and the body was not written.
    unit.exactly(copies, GOOD_COPIES, params![content, copies], Verdict::ResolveAgain);
    stored.delete_intents(unit);
    row.release_displaced(unit, content);
    row.supersede_intents(unit);
    RowAnswers { parent, written }
}

impl Referrer<'_> {
    fn lock_parent(&self, unit: &mut Unit) -> usize {
        match self {
            Self::Object { row, .. } => {
                unit.at(LockRank::Bucket).one(BUCKET_STANDS, params![row.bucket], Verdict::NoSuchBucket)
            }
            Self::Part(part) => unit.at(LockRank::Upload).one(HOLD_OPEN, params![part.upload], Verdict::NoSuchUpload),
        }
    }

    fn write(&self, unit: &mut Unit, content: ContentId) -> usize {
        match self {
            Self::Object { row, expects_free_key: true, .. } => insert_object(unit, row, content),
            Self::Object { row, condition, .. } => upsert_object(unit, row, content, condition),
            Self::Part(part) => upsert_part(unit, part, content, 0),
        }
    }

    /// Locks other writes of the key that are under way.
    fn lock_intents_of_key(&self, unit: &mut Unit) {
        if let Self::Object { .. } = self {
            unit.lock(LockRank::Intent, LOCK_INTENTS, self.key());
        }
    }

    /// Locks the content that the row referred to before.
    fn lock_displaced(&self, unit: &mut Unit) {
        if !self.displaces_nothing() {
            self.displaced().lock_contents(unit, &self.key());
        }
    }

    /// The same, together with content that the row now refers to.
    fn lock_displaced_and(&self, unit: &mut Unit, content: ContentId) {
        self.displaced().lock_contents_and(unit, &self.key(), content);
    }

    fn lock_quota_rows(&self, unit: &mut Unit, content: ContentId, write: Option<WriteId>) {
        self.displaced().lock_quota_rows(unit, &self.key(), Some(content), write);
    }

    /// Releases the content that the row referred to before.
    fn release_displaced(&self, unit: &mut Unit, content: ContentId) {
        let reason = match self {
            Self::Object { .. } => Reason::Overwrite,
            Self::Part(_) => Reason::Multipart,
        };
        if !self.displaces_nothing() {
            self.lock_quota_rows(unit, content, None);
            self.displaced().release(unit, &self.key(), reason);
        }
    }

    /// Marks other writes of the key as superseded, so that the reaper does not promote them.
    fn supersede_intents(&self, unit: &mut Unit) {
        if let Self::Object { .. } = self {
            unit.run(SUPERSEDE, self.key());
        }
    }

    fn displaces_nothing(&self) -> bool {
        matches!(self, Self::Object { expects_free_key: true, .. })
    }

    fn displaced(&self) -> &'static Release {
        match self {
            Self::Object { .. } => &DISPLACED,
            Self::Part(_) => &DISPLACED_PART,
        }
    }

    /// The row's primary key, which selects the content that it referred to before.
    fn key(&self) -> Vec<Value> {
        match self {
            Self::Object { row, .. } => params![row.bucket, &row.key],
            Self::Part(part) => params![part.upload, part.number],
        }
    }
}
