//! Intents that write no bytes: they refer to existing content until the body was compared with the declared digest.
//!
//! A pin is a counted reference; releasing the last one condemns the content.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::{BucketId, ContentId, InstanceId, IntentId, WriteId};
use s3o_model::intent::IntentKind;
use s3o_model::names::ObjectKey;

use super::{OPEN_UPLOAD, kind_columns};
use crate::error::{Error, Verdict};
use crate::objects::BUCKET_STANDS;
use crate::release::{DELETES_NOTHING, Release, Selector};
use crate::sharing::{ADD_REFERENCE, GOOD_COPIES};
use crate::unit::{LockRank, Unit};
use crate::{Catalog, params};

/// A write whose bytes are already stored, if its body turns out to be what the client declared.
#[derive(Debug, Clone)]
pub struct Pin {
    /// New for every pin.
    pub id: IntentId,
    /// Groups the intents of one write; a pin is the only one.
    pub write: WriteId,
    /// An object, or a part of an upload.
    pub kind: IntentKind,
    /// Bucket of the object.
    pub bucket: BucketId,
    /// Key of the object.
    pub key: ObjectKey,
    /// The content with the declared digest and size.
    pub content: ContentId,
    /// Number of its copies that the write relies on.
    pub copies: usize,
    /// Length of the body in bytes.
    pub size_bytes: u64,
    /// The process that compares the body.
    pub owner: InstanceId,
    /// How long the intent holds without renewal.
    pub lease: Duration,
}

const PIN: &str = "INSERT INTO pending_objects \
     (id, write_id, kind, bucket_id, key, upload_id, part_number, pin_content_id, size_bytes, stripe, owner, \
      lease_until, created_at) \
     VALUES ($1, $2, 'pin', $3, $4, $5, $6, $7, $8, 0, $9, :now + $10, :now) RETURNING lease_until";

/// Content pinned by the open intents of write `$1`.
pub(super) static OPEN: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "pending_objects WHERE write_id = $1 AND state = 'open' AND pin_content_id IS NOT NULL",
        column: "pin_content_id",
        deleted_pins: "q.write_id = $1 AND q.state = 'open'",
        ..DELETES_NOTHING
    })
});

/// Content pinned by the intents of write `$2` that carry the token `$1`.
pub(super) static CLAIMED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "pending_objects WHERE token = $1 AND write_id = $2 AND pin_content_id IS NOT NULL",
        column: "pin_content_id",
        // Most rows carry no token, and `NOT (NULL = $1)` would skip them.
        deleted_pins: "q.token IS NOT NULL AND q.token = $1 AND q.write_id = $2",
        ..DELETES_NOTHING
    })
});

/// Refers to live content with a good copy until the write is committed or dropped; the end of the lease is returned.
pub(super) async fn pin(catalog: &Catalog, pin: &Pin) -> Result<Timestamp, Error> {
    let (_, upload, number) = kind_columns(pin.kind);
    let mut unit = Unit::new("pin");
    unit.at(LockRank::Bucket).one(BUCKET_STANDS, params![pin.bucket], Verdict::NoSuchBucket);
    if let Some(upload) = upload {
        unit.at(LockRank::Upload).one(OPEN_UPLOAD, params![upload, pin.bucket, &pin.key], Verdict::NoSuchUpload);
    }
    let (content, lease, owner) = (pin.content, millis_of(pin.lease), pin.owner);
    let values =
        params![pin.id, pin.write, pin.bucket, &pin.key, upload, number, content, pin.size_bytes, owner, lease];
    let pinned = unit.run(PIN, values);
    unit.lock(LockRank::Content, "SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
    unit.one(ADD_REFERENCE, params![content], Verdict::ResolveAgain);
    unit.exactly(pin.copies, GOOD_COPIES, params![content, pin.copies], Verdict::ResolveAgain);
    catalog.write(unit).await?[pinned].rows[0].time("lease_until")
}
