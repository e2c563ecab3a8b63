//! Write-off of a backend that will never come back: its rows are removed in bounded steps, so that it can be removed
//! without a call to its store. A write-off that was interrupted continues with the rows that are left.
//!
//! A copy goes if another one counts. Otherwise it stays as a lost copy of zero bytes, so that its content is reported
//! as lost. What the other rows named is kept as one finding per kind, with their number and bytes.

use std::sync::LazyLock;

use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;
use serde::{Deserialize, Serialize};

use crate::copies::{COUNTS, has_copy, note_work_of};
use crate::error::{Error, Verdict};
use crate::quotas::{Counter, lock_quota_rows, move_bytes};
use crate::unit::{LockRank, Row, Unit, json};
use crate::{Catalog, params};

/// Number of rows in one step.
const STEP: usize = 500;

/// Kind of the finding about copies that no other copy replaces.
pub(crate) const LOST_COPIES: &str = "lost_copies";

/// What a write-off removed and nothing replaces, of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteOffTotal {
    /// Kind of the finding: `lost_copies`, `written_off_intents`, `written_off_cleanups`, `written_off_dead_letters`.
    pub kind: String,
    /// Number of rows.
    pub count: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

#[derive(Deserialize)]
struct WriteOffDetail {
    count: u64,
}

/// A table whose rows name bytes other than those of copies.
struct WrittenOffTable {
    unit: &'static str,
    rank: LockRank,
    next: String,
    lock: String,
    lock_quotas: String,
    report: String,
    release: String,
    delete: String,
}

/// Locks backend `$1`, which is being removed, against the end of its removal.
const IF_REMOVING: &str = "SELECT name FROM backends WHERE name = $1 AND removing_since IS NOT NULL \
     AND removed_at IS NULL /*share*/";

/// SQL that adds number and bytes of `rows` on backend `$1` to its finding of a kind. The detail is `{"count":N}`.
pub(crate) fn report(kind: &str, rows: &str) -> String {
    let count = |row: &str| format!("CAST(rtrim(substr({row}.detail, 10), '}}') AS BIGINT)");
    let (known, more) = (count("findings"), count("excluded"));
    format!(
        "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
         SELECT '{kind}', CAST($1 AS TEXT), '', s.bytes, '{{\"count\":' || s.n || '}}', :now FROM \
         (SELECT count(*) AS n, CAST(coalesce(sum(size_bytes), 0) AS BIGINT) AS bytes FROM {rows}) s WHERE s.n > 0 \
         ON CONFLICT (backend_name, physical_key, target, kind) DO UPDATE SET \
         size_bytes = findings.size_bytes + excluded.size_bytes, detail = '{{\"count\":' || ({known} + {more}) || '}}'"
    )
}

impl WrittenOffTable {
    /// `listed` selects the rows in list `$2`, `order` says which ones come first.
    fn of(
        (unit, rank): (&'static str, LockRank),
        (table, counter): (&str, Counter),
        [listed, order]: [&str; 2],
    ) -> Self {
        let kind = format!("written_off_{}", unit.trim_start_matches("write_off_"));
        let rows = format!("{table} WHERE backend_name = $1 AND {listed}");
        Self {
            unit,
            rank,
            next: format!("SELECT id FROM {table} WHERE backend_name = $1 ORDER BY {order} LIMIT $2"),
            lock: format!("SELECT id FROM {rows} ORDER BY id /*lock*/"),
            lock_quotas: lock_quota_rows(&rows),
            report: report(&kind, &rows),
            release: move_bytes(counter, None, &rows),
            delete: format!("DELETE FROM {rows}"),
        }
    }
}

/// An intent is written off once its lease has ended: while it lasts, a writer whose COMMIT was not answered takes the
/// absence of its intent for a commit.
static INTENTS: LazyLock<WrittenOffTable> = LazyLock::new(|| {
    let unit = ("write_off_intents", LockRank::Intent);
    let chosen = ["id IN TEXTS($2) AND lease_until <= :now", "lease_until"];
    WrittenOffTable::of(unit, ("pending_objects", Counter::Reserved), chosen)
});

static CLEANUPS: LazyLock<WrittenOffTable> = LazyLock::new(|| {
    let unit = ("write_off_cleanups", LockRank::Cleanup);
    WrittenOffTable::of(unit, ("cleanup_queue", Counter::Orphan), ["id IN NUMBERS($2)", "physical_key"])
});

static DEAD_LETTERS: LazyLock<WrittenOffTable> = LazyLock::new(|| {
    let unit = ("write_off_dead_letters", LockRank::DeadLetter);
    WrittenOffTable::of(unit, ("cleanup_dlq", Counter::Orphan), ["id IN NUMBERS($2)", "physical_key"])
});

/// The copies of contents `$2` on backend `$1` that are not lost yet.
const COPIES: &str = "object_locations WHERE backend_name = $1 AND content_id IN TEXTS($2) AND state <> 'lost'";

/// Those of which no other copy counts. They do not count themselves: their backend is being removed.
static LAST_COPIES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{COPIES} AND NOT EXISTS (SELECT 1 FROM object_locations l \
         WHERE l.content_id = object_locations.content_id AND {COUNTS})"
    )
});

static WRITE_OFF_COPIES: LazyLock<[String; 4]> = LazyLock::new(|| {
    let last = LAST_COPIES.as_str();
    let (_, chosen) = last.split_once(" WHERE ").expect("a table and a condition");
    [
        report(LOST_COPIES, last),
        move_bytes(Counter::Used, None, COPIES),
        format!("UPDATE object_locations SET state = 'lost', size_bytes = 0 WHERE {chosen}"),
        format!("DELETE FROM {COPIES}"),
    ]
});

static LOCK_COPY_QUOTAS: LazyLock<String> = LazyLock::new(|| lock_quota_rows(COPIES));

static NOTE_COPIES: LazyLock<String> = LazyLock::new(|| note_work_of("id IN TEXTS($1) AND kind = 'whole'"));

/// Nothing can be done for contents without a copy.
static FORGET_LOST: LazyLock<String> = LazyLock::new(|| {
    format!("DELETE FROM copy_work WHERE content_id IN TEXTS($1) AND NOT {}", has_copy("copy_work.content_id"))
});

fn total(row: &Row) -> Result<WriteOffTotal, Error> {
    let WriteOffDetail { count } = row.json("detail")?;
    Ok(WriteOffTotal { kind: row.string("kind")?, count, bytes: row.size("size_bytes")? })
}

impl Catalog {
    /// Starts the write-off of a backend: it takes no writes, and its copies no longer count. Fails as `NoSuchObject`
    /// if no backend has this name, `Closed` if it was removed.
    pub async fn begin_write_off(&self, name: &BackendName) -> Result<(), Error> {
        self.announce_change(name).await?;
        let mut unit = Unit::new("begin_write_off");
        let known = "SELECT name FROM backends WHERE name = $1 /*lock*/";
        unit.at(LockRank::Backend).one(known, params![name], Verdict::NoSuchObject);
        unit.one(
            "UPDATE backends SET removing_since = coalesce(removing_since, :now) \
             WHERE name = $1 AND removed_at IS NULL",
            params![name],
            Verdict::Closed,
        );
        self.change_backend(name, unit).await
    }

    /// Writes off the next copies with physical keys after `after`, and returns the last of these keys; `None` if there
    /// are no more. Fails as `Closed` if no write-off was begun.
    pub async fn write_off_copies(&self, name: &BackendName, after: &str) -> Result<Option<String>, Error> {
        const NEXT: &str = "SELECT content_id, physical_key FROM object_locations WHERE backend_name = $1 \
             AND physical_key > $2 AND state <> 'lost' ORDER BY physical_key LIMIT $3";
        let rows = self.read(NEXT, params![name, after, STEP]).await?;
        let Some(last) = rows.last().map(|row| row.string("physical_key")).transpose()? else { return Ok(None) };
        let ids = rows.iter().map(|row| row.parse("content_id")).collect::<Result<Vec<ContentId>, _>>()?;
        let page = json(&ids);
        let mut unit = Unit::new("write_off_copies");
        unit.at(LockRank::Backend).one(IF_REMOVING, params![name], Verdict::Closed);
        let lock = "SELECT id FROM contents WHERE id IN TEXTS($1) ORDER BY id /*lock*/";
        unit.lock(LockRank::Content, lock, params![&page]);
        unit.lock(LockRank::Quota, &LOCK_COPY_QUOTAS, params![name, &page]);
        for sql in WRITE_OFF_COPIES.iter() {
            unit.run(sql, params![name, &page]);
        }
        unit.run(&NOTE_COPIES, params![&page]);
        unit.run(&FORGET_LOST, params![&page]);
        self.write(unit).await.map(|_| Some(last))
    }

    /// Writes off the next intents, cleanups and dead letters; false if there are no more. Intents whose lease lasts
    /// are left. Fails as `Closed` if no write-off was begun.
    pub async fn write_off_queues(&self, name: &BackendName) -> Result<bool, Error> {
        let mut any = false;
        for table in [&*INTENTS, &*CLEANUPS, &*DEAD_LETTERS] {
            any |= self.write_off_rows(name, table).await?;
        }
        Ok(any)
    }

    async fn write_off_rows(&self, name: &BackendName, table: &'static WrittenOffTable) -> Result<bool, Error> {
        let rows = self.read(&table.next, params![name, STEP]).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let ids = if table.rank == LockRank::Intent {
            json(&rows.iter().map(|row| row.string("id")).collect::<Result<Vec<_>, _>>()?)
        } else {
            json(&rows.iter().map(|row| row.int("id")).collect::<Result<Vec<_>, _>>()?)
        };
        let mut unit = Unit::new(table.unit);
        if table.rank < LockRank::Backend {
            unit.lock(table.rank, &table.lock, params![name, &ids]);
        }
        unit.at(LockRank::Backend).one(IF_REMOVING, params![name], Verdict::Closed);
        if table.rank > LockRank::Backend {
            unit.lock(table.rank, &table.lock, params![name, &ids]);
        }
        unit.lock(LockRank::Quota, &table.lock_quotas, params![name, &ids]);
        for sql in [&table.report, &table.release] {
            unit.run(sql, params![name, &ids]);
        }
        let deleted = unit.run(&table.delete, params![name, &ids]);
        Ok(self.write(unit).await?[deleted].changed > 0)
    }

    /// What write-offs of a backend removed and nothing replaces.
    pub async fn write_off_totals(&self, name: &BackendName) -> Result<Vec<WriteOffTotal>, Error> {
        const TOTALS: &str = "SELECT kind, size_bytes, detail FROM findings WHERE backend_name = $1 \
             AND physical_key = '' AND kind IN ('lost_copies', 'written_off_intents', 'written_off_cleanups', \
             'written_off_dead_letters') ORDER BY kind";
        self.survey(TOTALS, params![name]).await?.iter().map(total).collect()
    }
}
