//! Intents that write no bytes: they hold content that is there already, until it is known whether the body that a
//! sender announced is the same.
//!
//! A pin is a reference like any other: it is counted, and whoever lets the last one go condemns.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::etag::Sha256;
use s3o_model::ids::{BucketId, ContentId, InstanceId, IntentId, WriteId};
use s3o_model::intent::IntentKind;
use s3o_model::names::ObjectKey;
use s3o_model::proof::Proof;

use super::{OPEN_UPLOAD, kind_columns};
use crate::error::{Error, Verdict};
use crate::objects::{BUCKET_STANDS, moment};
use crate::release::{NONE, Release, Selector};
use crate::sharing::{IS_THERE, REFER};
use crate::unit::Unit;
use crate::{Catalog, params};

/// A write whose bytes may be there already.
#[derive(Debug, Clone)]
pub struct Pin {
    /// The intent.
    pub id: IntentId,
    /// The write.
    pub write: WriteId,
    /// What the bytes are for.
    pub kind: IntentKind,
    /// The bucket of the object, which keeps equal content once.
    pub bucket: BucketId,
    /// The key of the object.
    pub key: ObjectKey,
    /// The digest that the sender announced.
    pub sha256: Sha256,
    /// How many bytes.
    pub size_bytes: u64,
    /// The process that compares.
    pub owner: InstanceId,
    /// How long the intent holds without renewal.
    pub lease: Duration,
}

/// Content that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// The content.
    pub content: ContentId,
    /// The end of the lease.
    pub until: Timestamp,
}

const PIN: &str = "INSERT INTO pending_objects \
     (id, write_id, kind, bucket_id, key, upload_id, part_number, pin_content_id, size_bytes, stripe, owner, \
      lease_until, created_at) \
     VALUES ($1, $2, 'pin', $3, $4, $5, $6, $7, $8, 0, $9, :now + $10, :now) RETURNING lease_until";

/// What the open intents of write `$1` hold.
pub(super) static OPEN: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "pending_objects WHERE write_id = $1 AND state = 'open' AND pin_content_id IS NOT NULL",
        column: "pin_content_id",
        dying_objects: NONE,
        dying_pieces: NONE,
        dying_parts: NONE,
        dying_pins: "q.write_id = $1 AND q.state = 'open'",
    })
});

/// What the intents of write `$2` that carry the token `$1` hold.
pub(super) static CLAIMED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "pending_objects WHERE token = $1 AND write_id = $2 AND pin_content_id IS NOT NULL",
        column: "pin_content_id",
        dying_objects: NONE,
        dying_pieces: NONE,
        dying_parts: NONE,
        // Most rows carry no token, and `NOT (NULL = $1)` would overlook them.
        dying_pins: "q.token IS NOT NULL AND q.token = $1 AND q.write_id = $2",
    })
});

/// Holds content of the bucket that is what was announced, if there is any with a copy that is proven to be good.
pub(super) async fn pin(catalog: &Catalog, pin: &Pin) -> Result<Option<Pinned>, Error> {
    let Some(known) = catalog.known_content(pin.bucket, pin.sha256, pin.size_bytes).await? else { return Ok(None) };
    if catalog.prove(&known).await? != Proof::Good {
        return Ok(None);
    }
    let content = known.content;
    let (_, upload, number) = kind_columns(pin.kind);
    let mut unit = Unit::new("pin");
    unit.one(BUCKET_STANDS, params![pin.bucket], Verdict::NoSuchBucket);
    if let Some(upload) = upload {
        unit.one(OPEN_UPLOAD, params![upload, pin.bucket, &pin.key], Verdict::NoSuchUpload);
    }
    let (lease, owner) = (millis_of(pin.lease), pin.owner);
    let values =
        params![pin.id, pin.write, pin.bucket, &pin.key, upload, number, content, pin.size_bytes, owner, lease];
    let pinned = unit.run(PIN, values);
    unit.lock("SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
    unit.one(REFER, params![content], Verdict::ResolveAgain);
    unit.one(IS_THERE, params![content], Verdict::ResolveAgain);
    match catalog.write(unit).await {
        Ok(answers) => Ok(Some(Pinned { content, until: moment(&answers[pinned].rows[0], 0)? })),
        Err(Error::Guard(Verdict::ResolveAgain)) => Ok(None),
        Err(error) => Err(error),
    }
}
