//! Dead letters in the catalog: listed, sent back to the queue, or discarded. A unit marks the rows
//! it works on, and what it returns is what it really did.

use async_trait::async_trait;
use s3o_model::cleanup::{BackendUpload, Selection};
use s3o_model::clock::Timestamp;
use s3o_model::dead_letter::DeadLetter;
use s3o_model::ids::{ClaimToken, CleanupId, DeadLetterId};
use s3o_model::names::BackendName;

use crate::cleanups::number_of_attempts;
use crate::error::Error;
use crate::objects::moment;
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// A dead letter that is to be discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discard {
    /// Which one.
    pub id: DeadLetterId,
    /// What is to be found of its bytes afterwards, as JSON; nothing, where they are proven gone.
    pub written_off: Option<String>,
}

/// What is known of dead letters. Lists given to a method hold at most a page of them.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// A page of dead letters behind a number, in the order of their numbers.
    async fn dead_letters(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<DeadLetter>, Error>;

    /// One dead letter.
    async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, Error>;

    /// The number of the newest one: those that come later are not meant by who asks now.
    async fn newest_dead_letter(&self) -> Result<Option<DeadLetterId>, Error>;

    /// Sends dead letters back to the queue, due now and with no attempt spent; those that were
    /// still there are returned.
    async fn retry_dead_letters(&self, ids: &[DeadLetterId], token: ClaimToken) -> Result<Vec<DeadLetter>, Error>;

    /// Takes dead letters and their bytes off the books, and leaves a finding where one is given;
    /// those that were still there are returned.
    async fn discard_dead_letters(&self, discards: &[Discard], token: ClaimToken) -> Result<Vec<DeadLetter>, Error>;

    /// The present moment by the catalog's clock, which also set the moments that dead letters name.
    async fn present(&self) -> Result<Timestamp, Error>;

    /// The bytes that were written off, by backend.
    async fn written_off(&self) -> Result<Vec<(BackendName, u64)>, Error>;
}

macro_rules! with_columns {
    ($head:literal, $tail:literal) => {
        concat!(
            $head,
            " id, original_id, backend_name, physical_key, backend_version, backend_upload, size_bytes, reason, \
             attempts, last_error, absent_ok_after, created_at, dead_since ",
            $tail
        )
    };
}

const PAGE: &str = with_columns!(
    "SELECT",
    "FROM cleanup_dlq WHERE id > $1 AND (CAST($2 AS TEXT) IS NULL OR backend_name = $2) \
     AND (CAST($3 AS TEXT) IS NULL OR reason = $3) ORDER BY id LIMIT $4"
);

/// In the order in which everybody takes them.
const LOCK: &str = "SELECT id FROM cleanup_dlq WHERE id IN NUMBERS($1) ORDER BY id /*lock*/";
const MARK: &str = "UPDATE cleanup_dlq SET token = $1 WHERE id IN NUMBERS($2)";
const REMOVE: &str = with_columns!("DELETE FROM cleanup_dlq WHERE token = $1 RETURNING", "");

const QUEUE_AGAIN: &str = "INSERT INTO cleanup_queue (original_id, backend_name, physical_key, backend_version, \
     backend_upload, size_bytes, stripe, reason, last_error, due, absent_ok_after, created_at) \
     SELECT original_id, backend_name, physical_key, backend_version, backend_upload, size_bytes, stripe, reason, \
     last_error, :now, absent_ok_after, created_at FROM cleanup_dlq WHERE token = $1";

const UNBOOK: &str = "UPDATE backend_quotas SET orphan_bytes = orphan_bytes - s.n \
     FROM (SELECT backend_name AS b, stripe AS t, sum(size_bytes) AS n FROM cleanup_dlq WHERE token = $1 \
     GROUP BY backend_name, stripe) s WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe";

const LEAVE_FINDINGS: &str = "INSERT INTO findings \
     (kind, backend_name, physical_key, size_bytes, stripe, detail, created_at) \
     SELECT 'written_off', d.backend_name, d.physical_key, d.size_bytes, d.stripe, t.value ->> 1, :now \
     FROM json_each($2) t JOIN cleanup_dlq d ON d.id = CAST(t.value ->> 0 AS BIGINT) \
     WHERE d.token = $1 AND (t.value ->> 1) IS NOT NULL";

fn dead_letter(row: &Row) -> Result<DeadLetter, Error> {
    Ok(DeadLetter {
        id: DeadLetterId(row.int(0)?),
        original_id: CleanupId(row.int(1)?),
        backend: row.parse(2)?,
        physical_key: row.text(3)?.to_owned(),
        backend_version: row.opt_text(4)?.map(str::to_owned),
        upload: BackendUpload::from_column(row.opt_text(5)?.map(str::to_owned)),
        size_bytes: row.size(6)?,
        reason: row.text(7)?.to_owned(),
        attempts: number_of_attempts(row, 8)?,
        last_error: row.opt_text(9)?.map(str::to_owned),
        absent_ok_after: row.opt_int(10)?.map(Timestamp::from_millis),
        created_at: moment(row, 11)?,
        dead_since: moment(row, 12)?,
    })
}

/// A unit that has marked these rows as the ones it works on.
fn marked(name: &'static str, ids: &[DeadLetterId], token: ClaimToken) -> Unit {
    let mut unit = Unit::new(name);
    unit.run(LOCK, params![json(&ids)]);
    unit.run(MARK, params![token, json(&ids)]);
    unit
}

impl Catalog {
    /// Ends a unit by removing what it marked; that is returned.
    async fn remove_marked(&self, mut unit: Unit, token: ClaimToken) -> Result<Vec<DeadLetter>, Error> {
        let removed = unit.run(REMOVE, params![token]);
        let answers = self.write(unit).await?;
        let mut letters: Vec<DeadLetter> = answers[removed].rows.iter().map(dead_letter).collect::<Result<_, _>>()?;
        letters.sort_by_key(|letter| letter.id);
        Ok(letters)
    }
}

#[async_trait]
impl DeadLetters for Catalog {
    async fn dead_letters(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        let params = params![after, which.backend.as_ref(), which.reason.as_ref(), limit];
        self.survey(PAGE, params).await?.iter().map(dead_letter).collect()
    }

    async fn dead_letter(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, Error> {
        const ONE: &str = with_columns!("SELECT", "FROM cleanup_dlq WHERE id = $1");
        self.survey(ONE, params![id.0]).await?.first().map(dead_letter).transpose()
    }

    async fn newest_dead_letter(&self) -> Result<Option<DeadLetterId>, Error> {
        const NEWEST: &str = "SELECT max(id) FROM cleanup_dlq";
        Ok(self.survey(NEWEST, vec![]).await?[0].opt_int(0)?.map(DeadLetterId))
    }

    async fn retry_dead_letters(&self, ids: &[DeadLetterId], token: ClaimToken) -> Result<Vec<DeadLetter>, Error> {
        let mut unit = marked("retry_dead_letters", ids, token);
        unit.run(QUEUE_AGAIN, params![token]);
        self.remove_marked(unit, token).await
    }

    async fn discard_dead_letters(&self, discards: &[Discard], token: ClaimToken) -> Result<Vec<DeadLetter>, Error> {
        let ids: Vec<DeadLetterId> = discards.iter().map(|discard| discard.id).collect();
        let findings: Vec<_> = discards.iter().map(|discard| (discard.id, discard.written_off.as_deref())).collect();
        let mut unit = marked("discard_dead_letters", &ids, token);
        unit.run(UNBOOK, params![token]);
        unit.run(LEAVE_FINDINGS, params![token, json(&findings)]);
        self.remove_marked(unit, token).await
    }

    async fn present(&self) -> Result<Timestamp, Error> {
        moment(&self.survey("SELECT :now", vec![]).await?[0], 0)
    }

    async fn written_off(&self) -> Result<Vec<(BackendName, u64)>, Error> {
        const SUMS: &str = "SELECT backend_name, CAST(sum(size_bytes) AS BIGINT) FROM findings \
             WHERE kind = 'written_off' GROUP BY backend_name ORDER BY backend_name";
        let rows = self.survey(SUMS, vec![]).await?;
        rows.iter().map(|row| Ok((row.parse(0)?, row.size(1)?))).collect()
    }
}
