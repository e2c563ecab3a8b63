//! Live content with a count of zero and no referring row.

use std::collections::HashSet;
use std::sync::LazyLock;

use s3o_model::cleanup::Reason;
use s3o_model::ids::ContentId;

use super::{CondemnedPlace, Confirmed};
use crate::error::Error;
use crate::release::{DELETES_NOTHING, Release, Selector};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

static UNREFERENCED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "contents WHERE id IN TEXTS($1) AND ref_count = 0",
        column: "id",
        ..DELETES_NOTHING
    })
});

/// A finding about the whole catalog: its backend is empty.
const NOTE: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
     VALUES ('miscounted', '', 'contents', 0, $1, :now) \
     ON CONFLICT (backend_name, physical_key, target, kind) DO UPDATE SET detail = excluded.detail";
const FORGET: &str =
    "DELETE FROM findings WHERE kind = 'miscounted' AND backend_name = '' AND physical_key = 'contents'";

pub(super) async fn condemn(catalog: &Catalog, suspects: &[Confirmed]) -> Result<Vec<CondemnedPlace>, Error> {
    catalog.condition.demand_sound()?;
    let unused = suspects.iter().filter(|suspect| (suspect.counted, suspect.found) == (0, 0));
    let contents: Vec<ContentId> = unused.map(|suspect| suspect.content).collect();
    let list = params![json(&contents)];
    let mut unit = Unit::new("condemn_unreferenced");
    UNREFERENCED.lock_contents(&mut unit, &list);
    let before = unit.run(
        "SELECT c.id, l.backend_name, l.physical_key, l.size_bytes FROM contents c \
         LEFT JOIN object_locations l ON l.content_id = c.id \
         WHERE c.id IN TEXTS($1) AND c.ref_count = 0 AND c.state = 'live'",
        list.clone(),
    );
    UNREFERENCED.lock_quota_rows(&mut unit, &list, None, None);
    UNREFERENCED.condemn(&mut unit, &list, Reason::Delete);
    let after = unit.run("SELECT id FROM contents WHERE id IN TEXTS($1) AND state = 'condemned'", list);
    let answers = catalog.write(unit).await?;
    let condemned = answers[after].rows.iter().map(|row| row.text("id"));
    let condemned = condemned.collect::<Result<HashSet<_>, Error>>()?;
    let places = answers[before].rows.iter().filter(|row| row.text("id").is_ok_and(|id| condemned.contains(id)));
    places.map(condemned_place).collect()
}

fn condemned_place(row: &Row) -> Result<CondemnedPlace, Error> {
    let place = match row.opt_text("backend_name")? {
        Some(_) => Some((row.parse("backend_name")?, row.string("physical_key")?, row.size("size_bytes")?)),
        None => None,
    };
    Ok(CondemnedPlace { content: row.parse("id")?, place })
}

pub(super) async fn note(catalog: &Catalog, suspects: u64) -> Result<(), Error> {
    let mut unit = Unit::new("note_suspects");
    if suspects == 0 {
        unit.run(FORGET, vec![]);
    } else {
        unit.run(NOTE, params![json(&serde_json::json!({ "suspects": suspects }))]);
    }
    catalog.write(unit).await.map(drop)
}
