//! Intents in the catalog: announced before bytes are written, renewed while they are, and turned
//! into cleanups when the write came to nothing.

mod expired;
mod pins;

use std::time::Duration;

use async_trait::async_trait;
use s3o_model::cleanup::{BackendUpload, Reason};
use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::{ClaimToken, InstanceId, IntentId, WriteId};
use s3o_model::intent::{Expired, Intent, IntentKind};

pub use pins::{Pin, Pinned};

use crate::error::{Error, Verdict};
use crate::low_water::Queue;
use crate::objects::BUCKET_STANDS;
use crate::quotas::{Sharing, share_anew, stripe_for};
use crate::unit::{Unit, json};
use crate::{Catalog, params};

/// Everything that is announced for one copy of a write.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The intent.
    pub intent: Intent,
    /// The process that writes.
    pub owner: InstanceId,
    /// How long the intent holds without renewal.
    pub lease: Duration,
}

/// Whether a write that was given up may still land on its backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Late {
    /// It cannot: the backend answered, or was never asked.
    #[default]
    No,
    /// It may, for this long; until then absence proves nothing.
    Within(Duration),
}

/// What is known of a write that ended after its intent was gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ended {
    /// The backend's version id, where it told one.
    pub backend_version: Option<String>,
    /// What may be left of a backend upload.
    pub upload: BackendUpload,
    /// Whether it may still land.
    pub late: Late,
}

/// What giving a write up found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Whether its intents were still open: it was not committed and now never will be.
    pub was_open: bool,
    /// The catalog's clock at that moment. Intents that are gone before their lease ended were
    /// committed; later, the reaper may have taken them.
    pub now: Timestamp,
}

impl Late {
    fn window(self) -> Option<i64> {
        match self {
            Self::No => None,
            Self::Within(window) => Some(millis_of(window)),
        }
    }
}

/// What is known of intents.
#[async_trait]
pub trait Intents: Send + Sync {
    /// Announces a write and reserves its room, in one transaction; the end of the lease is
    /// returned. Fails as `NoRoom` or `Closed` for this backend, `NoSuchBucket`, `NoSuchUpload`.
    async fn stage(&self, stage: &Stage) -> Result<Timestamp, Error>;

    /// Announces a write whose bytes may be there already: the content is held until the write is committed or
    /// given up. Nothing, if there is no such content with a good copy. Fails as `NoSuchBucket`, `NoSuchUpload`.
    async fn pin(&self, pin: &Pin) -> Result<Option<Pinned>, Error>;

    /// Renews leases; the intents that are still open are returned with their new ends.
    async fn renew(&self, intents: &[IntentId], lease: Duration) -> Result<Vec<(IntentId, Timestamp)>, Error>;

    /// Notes what is known of a backend upload, before it is acted upon. Fails as `Fenced`.
    async fn note_upload(&self, intent: IntentId, upload: &BackendUpload) -> Result<(), Error>;

    /// Gives a write up: its open intents become cleanups, and what they pin is let go of. It waits for a commit of
    /// the same write that is in doubt, and so tells whether that commit happened.
    async fn drop_write(&self, write: WriteId, late: Late) -> Result<Dropped, Error>;

    /// Which of these writes still have intents. It waits for transactions that are about to resolve one.
    async fn announced(&self, writes: &[WriteId]) -> Result<Vec<WriteId>, Error>;

    /// Queues the bytes of a write that was fenced, again, now that the write has ended. Nothing
    /// happens if a location names them, since the write was finished after all, or if the reaper
    /// still holds it.
    async fn requeue(&self, intent: &Intent, ended: &Ended) -> Result<(), Error>;

    /// Fences intents whose lease ran out and claims them for `hold`, at most `limit` writes, all
    /// copies of each. Whoever does not resolve them in time loses them to the next who asks.
    async fn claim_expired(&self, token: ClaimToken, limit: usize, hold: Duration) -> Result<Vec<Expired>, Error>;

    /// Claims for longer what is still claimed.
    async fn hold_expired(&self, token: ClaimToken, hold: Duration) -> Result<(), Error>;

    /// Turns a claimed write into cleanups that look out for it for `late`, and lets go of what it pins; `false` if the
    /// claim was lost.
    async fn abandon(&self, token: ClaimToken, write: WriteId, late: Duration) -> Result<bool, Error>;

    /// Leaves a claimed write for later; `false` if the claim was lost.
    async fn postpone(&self, token: ClaimToken, write: WriteId, rest: Duration) -> Result<bool, Error>;

    /// Ends the leases and claims of processes that are known to be dead. Only for a catalog
    /// that one process owns.
    async fn take_over(&self) -> Result<(), Error>;

    /// How many intents there are.
    async fn intents_depth(&self) -> Result<u64, Error>;
}

const STAGE: &str = "INSERT INTO pending_objects \
     (id, write_id, kind, bucket_id, key, upload_id, part_number, backend_name, physical_key, size_bytes, stripe, \
      owner, lease_until, created_at, draft) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $13, $11, :now + $12, :now, $14) RETURNING lease_until";

/// A stripe without a share has no limit.
pub(crate) const RESERVE: &str = "UPDATE backend_quotas SET reserved_bytes = reserved_bytes + $2 \
     WHERE backend_name = $1 AND stripe = $3 \
     AND (share_bytes IS NULL OR used_bytes + orphan_bytes + reserved_bytes + $2 <= share_bytes)";

const OPEN_UPLOAD: &str = "SELECT id FROM multipart_uploads \
     WHERE id = $1 AND bucket_id = $2 AND key = $3 AND state = 'open' /*share*/";

/// The present moment, and the earliest lease from `$1` on that has ended.
pub(crate) const ENDED_LEASE: &str = "SELECT :now, (SELECT lease_until FROM pending_objects \
     WHERE lease_until >= $1 AND lease_until <= :now ORDER BY lease_until LIMIT 1)";

fn kind_columns(kind: IntentKind) -> (&'static str, Option<s3o_model::ids::UploadId>, Option<u32>) {
    match kind {
        IntentKind::Object => ("object", None, None),
        IntentKind::Part { upload, number } => ("part", Some(upload), Some(number)),
    }
}

#[async_trait]
impl Intents for Catalog {
    async fn stage(&self, stage: &Stage) -> Result<Timestamp, Error> {
        let intent = &stage.intent;
        match self.stage_sharing(stage, Sharing::AsItIs).await {
            // Its stripe is full; others may have what it lacks.
            Err(Error::Guard(Verdict::NoRoom)) if self.has_room(&intent.backend, intent.size_bytes).await? => {
                self.stage_sharing(stage, Sharing::Anew).await
            }
            done => done,
        }
    }

    async fn pin(&self, pin: &Pin) -> Result<Option<Pinned>, Error> {
        pins::pin(self, pin).await
    }

    async fn renew(&self, intents: &[IntentId], lease: Duration) -> Result<Vec<(IntentId, Timestamp)>, Error> {
        let list = json(&intents);
        let mut unit = Unit::new("renew");
        // In the order in which commits take them, or renewals and commits block each other.
        unit.run(
            "SELECT id FROM pending_objects WHERE id IN TEXTS($1) AND state = 'open' ORDER BY id /*lock*/",
            params![&list],
        );
        let renewed = unit.run(
            "UPDATE pending_objects SET lease_until = :now + $2 \
             WHERE id IN TEXTS($1) AND state = 'open' RETURNING id, lease_until",
            params![&list, millis_of(lease)],
        );
        let answers = self.write(unit).await?;
        answers[renewed].rows.iter().map(|row| Ok((row.parse(0)?, crate::objects::moment(row, 1)?))).collect()
    }

    async fn note_upload(&self, intent: IntentId, upload: &BackendUpload) -> Result<(), Error> {
        let mut unit = Unit::new("note_upload");
        unit.one(
            "UPDATE pending_objects SET backend_upload = $2 WHERE id = $1 AND state = 'open'",
            params![intent, upload.to_column()],
            Verdict::Fenced,
        );
        self.write(unit).await.map(drop)
    }

    async fn drop_write(&self, write: WriteId, late: Late) -> Result<Dropped, Error> {
        const ENQUEUE: [&str; 4] = expired::enqueue!("write_id = $1 AND state = 'open'", "$2");
        let mut unit = Unit::new("drop_write");
        let open = unit.run(
            "SELECT id FROM pending_objects WHERE write_id = $1 AND state = 'open' ORDER BY id /*lock*/",
            params![write],
        );
        pins::OPEN.release(&mut unit, &[write.into()], Reason::Dedup);
        for sql in ENQUEUE {
            unit.run(sql, params![write, late.window()]);
        }
        let clock = unit.run("SELECT :now", vec![]);
        let answers = self.write(unit).await?;
        let now = crate::objects::moment(&answers[clock].rows[0], 0)?;
        Ok(Dropped { was_open: !answers[open].rows.is_empty(), now })
    }

    async fn announced(&self, writes: &[WriteId]) -> Result<Vec<WriteId>, Error> {
        let mut unit = Unit::new("announced");
        let open = unit.run(
            "SELECT write_id FROM pending_objects WHERE write_id IN TEXTS($1) ORDER BY id /*lock*/",
            params![json(&writes)],
        );
        self.write(unit).await?[open].rows.iter().map(|row| row.parse(0)).collect()
    }

    async fn requeue(&self, intent: &Intent, ended: &Ended) -> Result<(), Error> {
        expired::requeue(self, intent, ended).await
    }

    async fn claim_expired(&self, token: ClaimToken, limit: usize, hold: Duration) -> Result<Vec<Expired>, Error> {
        expired::claim(self, token, limit, hold).await
    }

    async fn hold_expired(&self, token: ClaimToken, hold: Duration) -> Result<(), Error> {
        expired::hold(self, token, hold).await
    }

    async fn abandon(&self, token: ClaimToken, write: WriteId, late: Duration) -> Result<bool, Error> {
        expired::abandon(self, token, write, late).await
    }

    async fn postpone(&self, token: ClaimToken, write: WriteId, rest: Duration) -> Result<bool, Error> {
        expired::postpone(self, token, write, rest).await
    }

    async fn take_over(&self) -> Result<(), Error> {
        let mut unit = Unit::new("take_over");
        unit.run("UPDATE pending_objects SET lease_until = :now WHERE lease_until > :now", vec![]);
        unit.run(
            "UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL WHERE token IS NOT NULL",
            vec![],
        );
        self.write(unit).await.map(drop)
    }

    async fn intents_depth(&self) -> Result<u64, Error> {
        self.survey("SELECT count(*) FROM pending_objects", vec![]).await?[0].size(0)
    }
}

impl Catalog {
    async fn stage_sharing(&self, stage: &Stage, sharing: Sharing) -> Result<Timestamp, Error> {
        let intent = &stage.intent;
        let (kind, upload, number) = kind_columns(intent.kind);
        let stripe = stripe_for(intent.id, self.driver.stripes());
        let mut unit = Unit::new("stage");
        unit.one(BUCKET_STANDS, params![intent.bucket], Verdict::NoSuchBucket);
        if let Some(upload) = upload {
            unit.one(OPEN_UPLOAD, params![upload, intent.bucket, &intent.key], Verdict::NoSuchUpload);
        }
        unit.one(
            "SELECT name FROM backends WHERE name = $1 AND frozen_reason IS NULL AND draining = 0 /*share*/",
            params![&intent.backend],
            Verdict::Closed,
        );
        let staged = unit.run(
            STAGE,
            params![
                intent.id,
                intent.write,
                kind,
                intent.bucket,
                &intent.key,
                upload,
                number,
                &intent.backend,
                &intent.physical_key,
                intent.size_bytes,
                stage.owner,
                millis_of(stage.lease),
                stripe,
                intent.draft.as_ref().map(json),
            ],
        );
        if sharing == Sharing::Anew {
            share_anew(&mut unit, &intent.backend, stripe, intent.size_bytes);
        }
        unit.one(RESERVE, params![&intent.backend, intent.size_bytes, stripe], Verdict::NoRoom);
        crate::objects::moment(&self.write(unit).await?[staged].rows[0], 0)
    }

    /// The earliest lease that has ended, if the look finds one. Every write that was committed left
    /// its entry in that index, so looks begin where the last one ended.
    async fn first_ended_lease(&self) -> Result<Option<Timestamp>, Error> {
        let look = self.low_waters.look(Queue::Leases);
        let row = &self.read(ENDED_LEASE, params![look.from]).await?[0];
        let now = crate::objects::moment(row, 0)?;
        let ended = row.opt_int(1)?.map(Timestamp::from_millis);
        self.low_waters.of(Queue::Leases, |water| water.reached(look, now, ended.unwrap_or(now)));
        Ok(ended)
    }
}
