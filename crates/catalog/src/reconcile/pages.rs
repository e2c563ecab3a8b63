//! One page of an open pass. Its findings and its position are stored in one unit, which compares the old position: of
//! two instances that continue a pass, one stops.

use s3o_model::clock::Timestamp;
use s3o_model::ids::InstanceId;
use s3o_model::reconcile::{FindingKind, PassCounts};
use s3o_model::target::Target;

use super::ReconcilePass;
use crate::error::{Error, Verdict};
use crate::unit::{Unit, json};
use crate::{Catalog, params};

/// A finding of a pass that is not closed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedFinding {
    /// Kind of the finding; `None`: bytes that an operator wrote off are proven absent.
    pub kind: Option<FindingKind>,
    /// Key on the backend.
    pub physical_key: String,
    /// What it is about, under the key.
    pub target: Target,
    /// Length of the bytes that are there, or that should be.
    pub size_bytes: u64,
    /// Differs for bytes that were written again.
    pub fingerprint: String,
    /// Time in the identifier of the key.
    pub born_at: Option<Timestamp>,
    /// For operators, as JSON.
    pub detail: String,
}

/// Foreign keys of one page with the same first folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderCount {
    /// Name of the folder with a slash; `/` for keys in none, `other` for those beyond the bound.
    pub folder: String,
    /// Number of keys.
    pub keys: u64,
    /// Sum of their sizes.
    pub bytes: u64,
}

/// What one page adds to a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassPage {
    /// Position after the page.
    pub position: String,
    /// Counts of the pass, this page included.
    pub counts: PassCounts,
    /// At most as many as the backend lists in one page.
    pub findings: Vec<StagedFinding>,
    /// Foreign keys by first folder.
    pub folders: Vec<FolderCount>,
    /// The instance that read the page.
    pub instance: InstanceId,
}

/// Kind of the staged row that closes a `written_off` finding.
pub(super) const WRITTEN_OFF: &str = "written_off";

const ADVANCE: &str = "UPDATE reconcile_passes SET position = $3, counts = $4, instance = $5, failures = 0, \
     reason = NULL, updated_at = :now WHERE id = $1 AND position = $2 AND state = 'open'";

const STAGE: &str = "INSERT INTO reconcile_findings \
     (pass_id, backend_name, kind, physical_key, target, size_bytes, fingerprint, born_at, detail) \
     SELECT CAST($1 AS BIGINT), CAST($2 AS TEXT), t.value ->> 0, t.value ->> 1, t.value ->> 2, \
     CAST(t.value ->> 3 AS BIGINT), t.value ->> 4, CAST(t.value ->> 5 AS BIGINT), t.value ->> 6 \
     FROM json_each($3) t WHERE 1 = 1 ON CONFLICT (pass_id, kind, physical_key, target) DO NOTHING";

const ADD_FOLDERS: &str = "INSERT INTO reconcile_folders (pass_id, folder, keys, bytes) \
     SELECT CAST($1 AS BIGINT), t.value ->> 0, CAST(t.value ->> 1 AS BIGINT), CAST(t.value ->> 2 AS BIGINT) \
     FROM json_each($2) t WHERE 1 = 1 ON CONFLICT (pass_id, folder) DO UPDATE SET \
     keys = reconcile_folders.keys + excluded.keys, bytes = reconcile_folders.bytes + excluded.bytes";

fn as_lists(findings: &[StagedFinding]) -> String {
    let list = findings.iter().map(|found| {
        let StagedFinding { kind, physical_key, target, size_bytes, fingerprint, born_at, detail } = found;
        let kind = kind.map_or(WRITTEN_OFF, FindingKind::as_str);
        (kind, physical_key, target.to_column(), size_bytes, fingerprint, born_at.map(Timestamp::millis), detail)
    });
    json(&list.collect::<Vec<_>>())
}

impl Catalog {
    /// Stores a page of an open pass and advances its position. Fails as `RunAgain` if another instance did, or if the
    /// pass ended.
    pub async fn store_pass_page(&self, pass: &ReconcilePass, page: &PassPage) -> Result<(), Error> {
        let PassPage { position, counts, findings, folders, instance } = page;
        let mut unit = Unit::new("store_pass_page");
        let advance = params![pass.id, &pass.position, position, json(counts), *instance];
        unit.one(ADVANCE, advance, Verdict::RunAgain);
        if !findings.is_empty() {
            unit.run(STAGE, params![pass.id, &pass.backend, as_lists(findings)]);
        }
        if !folders.is_empty() {
            let list: Vec<_> = folders.iter().map(|counted| (&counted.folder, counted.keys, counted.bytes)).collect();
            unit.run(ADD_FOLDERS, params![pass.id, json(&list)]);
        }
        self.write(unit).await.map(drop)
    }

    /// Foreign keys of a pass by their first folder, the largest folders first.
    pub async fn foreign_folders(&self, pass: i64, limit: usize) -> Result<Vec<FolderCount>, Error> {
        const FOLDERS: &str = "SELECT folder, keys, bytes FROM reconcile_folders WHERE pass_id = $1 \
             ORDER BY bytes DESC, folder LIMIT $2";
        let rows = self.survey(FOLDERS, params![pass, limit]).await?;
        let counted = |row: &crate::unit::Row| {
            Ok(FolderCount { folder: row.string("folder")?, keys: row.size("keys")?, bytes: row.size("bytes")? })
        };
        rows.iter().map(counted).collect()
    }
}
