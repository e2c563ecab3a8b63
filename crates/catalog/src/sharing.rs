//! Content that a bucket keeps once: found by digest and size, joined by whoever writes the same bytes again.
//!
//! Live content wins. Whoever joins it counts one more reference, and its own copy of the bytes goes, unless no copy of
//! the old is known to be good: then the new one takes its place. What is taken to be good is looked at first
//! ([`copies`](crate::copies)); where nobody can tell, nothing is joined, and the bytes are content of their own.
//! Condemned content is not seen, and nothing brings it back: a write that meets it makes content of its own.

use s3o_model::content::Location;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::proof::Proof;

use crate::error::{Error, Verdict};
use crate::landed::Landed;
use crate::objects::location;
use crate::release::Release;
use crate::unit::{Unit, Value};
use crate::{Catalog, params};

/// How often a write looks again for content that is made or condemned under its hands; then its bytes are kept apart.
pub(crate) const RUNS_MAX: usize = 16;

/// Bytes that are about to become content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body {
    /// The content they become, unless they join another.
    pub fresh: ContentId,
    /// The bucket that keeps equal content once, if it does.
    pub dedup: Option<BucketId>,
    /// Their digest.
    pub sha256: Option<Sha256>,
    /// Their digest.
    pub md5: Md5,
    /// How many they are.
    pub size_bytes: u64,
}

/// Live content that a bucket keeps once.
#[derive(Debug)]
pub(crate) struct Known {
    /// The content.
    pub content: ContentId,
    /// How many bytes it has.
    pub size_bytes: u64,
    /// Its copies that are taken to be good.
    pub copies: Vec<Location>,
}

/// What becomes of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// Content of their own, which later writes of that bucket may join.
    Fresh(Option<BucketId>),
    /// One more reference to this content.
    Joined(ContentId),
    /// The reference that an intent holds to this content goes to the new row.
    Pinned(ContentId),
}

const KNOWN: &str = "SELECT c.id, l.backend_name, l.physical_key FROM contents c \
     LEFT JOIN object_locations l ON l.content_id = c.id AND l.state = 'present' \
     WHERE c.dedup_bucket = $1 AND c.sha256 = $2 AND c.size_bytes = $3 AND c.state = 'live' ORDER BY l.backend_name";

const INSERT: &str = "INSERT INTO contents (id, kind, sha256, md5, size_bytes, ref_count) \
     VALUES ($1, 'whole', $2, $3, $4, 1)";

/// Waits for whoever is about to make or to condemn the same content. Nothing is held yet, so nobody waits in turn.
const INSERT_ONCE: &str = "INSERT INTO contents (id, kind, sha256, md5, size_bytes, ref_count, dedup_bucket) \
     VALUES ($1, 'whole', $2, $3, $4, 1, $5) \
     ON CONFLICT (dedup_bucket, sha256, size_bytes) WHERE state = 'live' AND dedup_bucket IS NOT NULL DO NOTHING";

/// Whether content is not condemned; nothing is held.
pub(crate) const IS_LIVE: &str = "SELECT id FROM contents WHERE id = $1 AND state = 'live'";

/// One more reference to content that the unit holds.
pub(crate) const REFER: &str = "UPDATE contents SET ref_count = ref_count + 1 WHERE id = $1 AND state = 'live'";

/// Whether a copy of content `$1` is known to be good.
pub(crate) const IS_THERE: &str =
    "SELECT content_id FROM object_locations WHERE content_id = $1 AND state = 'present' LIMIT 1";

/// Fewer good copies of content `$1` are known than the `$2` that a write makes.
macro_rules! few {
    () => {
        "(SELECT count(*) FROM object_locations h WHERE h.content_id = $1 AND h.state = 'present') < $2"
    };
}

/// Copies that a new one takes the place of.
macro_rules! replaced {
    () => {
        concat!("object_locations WHERE content_id = $1 AND state <> 'present' AND ", few!())
    };
}

macro_rules! enqueue {
    ($rows:expr) => {
        concat!(
            "INSERT INTO cleanup_queue \
             (backend_name, physical_key, backend_version, size_bytes, stripe, reason, due, created_at) \
             SELECT backend_name, physical_key, backend_version, size_bytes, stripe, 'dedup', :now, :now FROM ",
            $rows
        )
    };
}

/// Copies of content `$1` that are not known to be good make way, where good ones are wanted.
const MAKE_WAY: [&str; 3] = [
    enqueue!(replaced!()),
    concat!(
        "UPDATE backend_quotas SET used_bytes = used_bytes - s.n, orphan_bytes = orphan_bytes + s.n \
         FROM (SELECT backend_name AS b, stripe AS t, sum(size_bytes) AS n FROM ",
        replaced!(),
        " GROUP BY backend_name, stripe) s WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
    ),
    concat!("DELETE FROM ", replaced!()),
];

/// The bytes of write `$3` become copies of it, where they are wanted.
const ADD: &str = concat!(
    "INSERT INTO object_locations \
     (content_id, backend_name, physical_key, backend_version, size_bytes, stripe, state, verified_at) \
     SELECT $1, backend_name, physical_key, backend_version, size_bytes, stripe, 'present', :now \
     FROM pending_objects WHERE ",
    few!(),
    " AND backend_name NOT IN (SELECT backend_name FROM object_locations WHERE content_id = $1) AND write_id = $3"
);

/// True for an intent `q` whose bytes a location names.
macro_rules! kept {
    () => {
        "EXISTS (SELECT 1 FROM object_locations l WHERE l.backend_name = q.backend_name AND l.physical_key = q.physical_key)"
    };
}

/// What is left of write `$1` becomes cleanups, all of it is booked where it now belongs, and the intents go.
const SETTLE: [&str; 3] = [
    enqueue!(concat!("pending_objects q WHERE write_id = $1 AND NOT ", kept!())),
    concat!(
        "UPDATE backend_quotas SET reserved_bytes = reserved_bytes - s.n, used_bytes = used_bytes + s.kept, \
         orphan_bytes = orphan_bytes + s.n - s.kept \
         FROM (SELECT q.backend_name AS b, q.stripe AS t, sum(q.size_bytes) AS n, sum(CASE WHEN ",
        kept!(),
        " THEN q.size_bytes ELSE 0 END) AS kept FROM pending_objects q WHERE q.write_id = $1 \
         GROUP BY q.backend_name, q.stripe) s \
         WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
    ),
    "DELETE FROM pending_objects WHERE write_id = $1",
];

impl Becomes {
    /// The content that the new row refers to.
    pub(crate) fn content(self, body: &Body) -> ContentId {
        match self {
            Self::Fresh(_) => body.fresh,
            Self::Joined(content) | Self::Pinned(content) => content,
        }
    }

    /// Whether the bytes become content that nobody else knows.
    pub(crate) fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh(_))
    }

    /// Whether the body was not written because the content is there.
    pub(crate) fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned(_))
    }

    /// Adds the statement that makes the content, or finds it, before a row refers to it.
    pub(crate) fn appear(self, unit: &mut Unit, body: &Body) {
        let sha256 = body.sha256.map(|digest| digest.to_string());
        let mut values = params![body.fresh, sha256, body.md5.to_string(), body.size_bytes];
        match self {
            // A fresh row that nobody else can see: it takes its place before the row that refers to it without
            // breaking the order of locks.
            Self::Fresh(None) => drop(unit.run(INSERT, values)),
            Self::Fresh(Some(bucket)) => {
                values.extend(params![bucket]);
                unit.one(INSERT_ONCE, values, Verdict::ResolveAgain);
            }
            Self::Joined(content) => drop(unit.one(IS_LIVE, params![content], Verdict::ResolveAgain)),
            // The pin kept it alive for as long as there was one.
            Self::Pinned(content) => drop(unit.one(IS_LIVE, params![content], Verdict::Fenced)),
        }
    }

    /// Adds the statements that lock the contents, those that are displaced too, and take the reference.
    pub(crate) fn acquire(self, unit: &mut Unit, displaced: &'static Release, place: &[Value]) {
        match self {
            Self::Fresh(_) => displaced.lock(unit, place),
            Self::Joined(content) => {
                displaced.lock_with(unit, place, content);
                unit.one(REFER, params![content], Verdict::ResolveAgain);
            }
            Self::Pinned(content) => {
                displaced.lock_with(unit, place, content);
                // It may have been found missing since it was pinned, and the body was not written.
                unit.one(IS_THERE, params![content], Verdict::ResolveAgain);
            }
        }
    }

    /// Adds the statements that give the bytes their place: as locations of the content, or as cleanups.
    pub(crate) fn settle(
        self,
        unit: &mut Unit,
        landed: &Landed,
        body: &Body,
        (displaced, place): (&'static Release, &[Value]),
    ) {
        let Self::Joined(content) = self else {
            return landed.settle(unit, self.content(body));
        };
        let write = landed.announce(unit, body.fresh);
        landed.reserve(unit);
        displaced.enter(unit, place, Some(content), Some(write));
        for sql in MAKE_WAY {
            unit.run(sql, params![content, landed.copies()]);
        }
        unit.run(ADD, params![content, landed.copies(), write]);
        for sql in SETTLE {
            unit.run(sql, params![write]);
        }
    }

    /// Adds the statements that book what was not booked with its place. They end a unit: from here on, writers of the
    /// same stripe wait for it.
    pub(crate) fn book(self, unit: &mut Unit, landed: &Landed, body: &Body) {
        if self.is_fresh() {
            landed.book(unit, body.fresh);
        }
    }
}

impl Catalog {
    /// Live content of a bucket that holds these bytes.
    pub(crate) async fn known_content(
        &self,
        bucket: BucketId,
        sha256: Sha256,
        size_bytes: u64,
    ) -> Result<Option<Known>, Error> {
        let rows = self.read(KNOWN, params![bucket, sha256.to_string(), size_bytes]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let copies = rows.iter().filter_map(|row| location(row, 1).transpose()).collect::<Result<_, _>>()?;
        Ok(Some(Known { content: first.parse(0)?, size_bytes, copies }))
    }

    /// What becomes of landed bytes, as things stand.
    pub(crate) async fn becomes(&self, landed: &Landed, body: &Body) -> Result<Becomes, Error> {
        match (landed, body.dedup, body.sha256) {
            (Landed::Pinned { content, .. }, _, _) => Ok(Becomes::Pinned(*content)),
            (_, Some(bucket), Some(sha256)) => {
                let known = self.known_content(bucket, sha256, body.size_bytes).await?;
                let Some(known) = known else { return Ok(Becomes::Fresh(Some(bucket))) };
                Ok(match self.prove(&known).await? {
                    Proof::Good | Proof::Bad => Becomes::Joined(known.content),
                    // What was sent just now must not depend on what may never come back.
                    Proof::Unclear => Becomes::Fresh(None),
                })
            }
            _ => Ok(Becomes::Fresh(None)),
        }
    }
}
