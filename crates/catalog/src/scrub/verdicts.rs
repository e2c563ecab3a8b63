//! What the scrubber learnt about single copies. Each unit applies only to the copy that was read: its content, backend
//! and key must still be the same.

use s3o_model::etag::Sha256;
use s3o_model::ids::ContentId;

use super::{STOPPED, ScrubCopy};
use crate::copies::settle_work;
use crate::error::{Error, Verdict};
use crate::unit::{LockRank, Unit};
use crate::{Catalog, params};

/// What became of a copy with a wrong digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accused {
    /// It is suspect: another copy replaces it.
    Suspect,
    /// No copy of the content is left that may be good: its copies are lost, and their bytes stay.
    Lost,
    /// It was deleted, replaced or judged meanwhile; nothing was changed.
    Changed,
}

const LOCK: &str = "SELECT id FROM contents WHERE id = $1 /*lock*/";

/// The copy must be as it was read: `$4` is 1 if it had a wrong digest before.
const ACCUSE: &str = "UPDATE object_locations SET state = CASE WHEN state = 'lost' THEN 'lost' ELSE 'suspect' END, \
     wrong_digest = 1 WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 AND wrong_digest = $4 \
     AND (state <> 'lost' OR wrong_digest = 1)";

/// Copies with a wrong digest are lost if no other copy may be good.
const LOSE: &str = "UPDATE object_locations SET state = 'lost' WHERE content_id = $1 AND wrong_digest = 1 \
     AND state = 'suspect' AND NOT EXISTS (SELECT 1 FROM object_locations g WHERE g.content_id = $1 \
     AND g.wrong_digest = 0 AND g.state <> 'lost') RETURNING backend_name";

const PROVE: &str = "UPDATE object_locations SET state = 'present', wrong_digest = 0, verified_at = :now \
     WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 AND (state <> 'lost' OR wrong_digest = 1)";

/// The other copies with a wrong digest are lost no more: the good one replaces them.
const FIND: &str = "UPDATE object_locations SET state = 'suspect' WHERE content_id = $1 AND state = 'lost' \
     AND wrong_digest = 1 AND EXISTS (SELECT 1 FROM object_locations g WHERE g.content_id = $1 \
     AND g.state = 'present')";

/// Content of a deduplicating bucket keeps its digest: it is part of a unique key.
const LEARN: &str = "UPDATE contents SET sha256 = $2 WHERE id = $1 AND sha256 IS NULL AND dedup_bucket IS NULL \
     AND state = 'live'";

const STOP: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
     VALUES ($1, '', '', 0, $2, :now) ON CONFLICT (backend_name, physical_key, kind) DO UPDATE \
     SET detail = excluded.detail, created_at = excluded.created_at";

impl Catalog {
    /// Records that a copy was read twice and had the same wrong digest both times. It is never served again, unless a
    /// later read finds the right digest.
    pub async fn accuse_copy(&self, copy: &ScrubCopy) -> Result<Accused, Error> {
        let (content, place) = (copy.content, &copy.location);
        let mut unit = Unit::new("accuse_copy");
        unit.lock(LockRank::Content, LOCK, params![content]);
        let values = params![content, &place.backend, place.physical_key.as_str(), i64::from(copy.has_wrong_digest)];
        unit.one(ACCUSE, values, Verdict::RunAgain);
        let lost = unit.run(LOSE, params![content]);
        settle_work(&mut unit, content);
        match self.write(unit).await {
            Ok(answers) if answers[lost].changed > 0 => Ok(Accused::Lost),
            Ok(_) => Ok(Accused::Suspect),
            Err(Error::Guard(Verdict::RunAgain)) => Ok(Accused::Changed),
            Err(error) => Err(error),
        }
    }

    /// Records that all bytes of a copy were read and have the right digest: it is present, and content that was lost
    /// is readable again.
    pub async fn prove_copy(&self, copy: &ScrubCopy) -> Result<(), Error> {
        let (content, place) = (copy.content, &copy.location);
        let mut unit = Unit::new("prove_copy");
        unit.lock(LockRank::Content, LOCK, params![content]);
        unit.run(PROVE, params![content, &place.backend, place.physical_key.as_str()]);
        unit.run(FIND, params![content]);
        settle_work(&mut unit, content);
        self.write(unit).await.map(drop)
    }

    /// Records the SHA-256 of content that has none, after its MD5 was found right.
    pub async fn learn_sha256(&self, content: ContentId, sha256: Sha256) -> Result<(), Error> {
        let mut unit = Unit::new("learn_sha256");
        unit.at(LockRank::Content).run(LEARN, params![content, sha256.to_string()]);
        self.write(unit).await.map(drop)
    }

    /// Number and bytes of live contents all of whose copies are lost.
    pub async fn lost_copies(&self) -> Result<(u64, u64), Error> {
        const LOST: &str = "SELECT count(*) AS n, CAST(coalesce(sum(size_bytes), 0) AS BIGINT) AS bytes FROM contents \
             WHERE state = 'live' AND id IN (SELECT l.content_id FROM object_locations l WHERE l.state = 'lost') \
             AND NOT EXISTS (SELECT 1 FROM object_locations h WHERE h.content_id = contents.id AND h.state <> 'lost')";
        let rows = self.survey(LOST, vec![]).await?;
        Ok((rows[0].size("n")?, rows[0].size("bytes")?))
    }

    /// Stops the scrubber on all instances until [`Catalog::resume_scrub`]. The reason is a finding.
    pub async fn stop_scrub(&self, why: &str) -> Result<(), Error> {
        let mut unit = Unit::new("stop_scrub");
        unit.run(STOP, params![STOPPED, why]);
        self.write(unit).await.map(drop)
    }

    /// Ends a stop of the scrubber.
    pub async fn resume_scrub(&self) -> Result<(), Error> {
        let mut unit = Unit::new("resume_scrub");
        unit.run("DELETE FROM findings WHERE kind = $1 AND backend_name = '' AND physical_key = ''", params![STOPPED]);
        self.write(unit).await.map(drop)
    }
}
