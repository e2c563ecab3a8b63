//! Confirms by reading whole tables that no row names bytes, before they are queued for deletion.
//!
//! A damaged index may miss the row of a living object. Its bytes would then look like those of no row.

use std::collections::HashSet;

use s3o_model::names::BackendName;
use s3o_model::target::Target;
use s3o_model::verify::NamingRow;

use super::{naming, naming_row};
use crate::cleanups::unnamed::UnnamedKey;
use crate::error::Error;
use crate::unit::{Row, Statement, json};
use crate::{Catalog, params};

/// Number of characters of an identifier.
const IDENTIFIER_CHARS: usize = 32;

fn identifier_of(draft: &str) -> &str {
    draft.get(draft.len().saturating_sub(IDENTIFIER_CHARS)..).unwrap_or(draft)
}

impl Catalog {
    /// Those of the keys that no row names, by the tables and not by an index. Reads every naming table once. Fails as
    /// `Away` unless the catalog passed its integrity check. If an index shows fewer rows than its table, the catalog
    /// is marked as damaged.
    pub async fn confirm_unnamed(&self, backend: &BackendName, keys: &[UnnamedKey]) -> Result<Vec<UnnamedKey>, Error> {
        self.condition.demand_sound()?;
        let (drafts, others): (Vec<_>, Vec<_>) = keys.iter().cloned().partition(|key| key.target == Target::Draft);
        let mut unnamed = self.without_rows(backend, others).await?;
        unnamed.extend(self.without_writes(backend, drafts).await?);
        Ok(unnamed)
    }

    async fn without_rows(&self, backend: &BackendName, keys: Vec<UnnamedKey>) -> Result<Vec<UnnamedKey>, Error> {
        let names: Vec<&str> = keys.iter().map(|key| key.physical_key.as_str()).collect();
        let rows = self.in_tables([&naming::NAMED, &naming::NAMED_BY_TABLE], backend, &names).await?;
        let rows = rows.iter().map(|row| naming_row(row, None)).collect::<Result<Vec<NamingRow>, _>>()?;
        let names_it =
            |key: &UnnamedKey, row: &NamingRow| row.physical_key == key.physical_key && row.names(&key.target);
        Ok(keys.into_iter().filter(|key| !rows.iter().any(|row| names_it(key, row))).collect())
    }

    async fn without_writes(&self, backend: &BackendName, drafts: Vec<UnnamedKey>) -> Result<Vec<UnnamedKey>, Error> {
        let ids: Vec<&str> = drafts.iter().map(|draft| identifier_of(&draft.physical_key)).collect();
        let rows = self.in_tables([&naming::IDENTIFIED, &naming::IDENTIFIED_BY_TABLE], backend, &ids).await?;
        let named = rows.iter().map(|row| row.string("identifier")).collect::<Result<HashSet<_>, _>>()?;
        Ok(drafts.into_iter().filter(|draft| !named.contains(identifier_of(&draft.physical_key))).collect())
    }

    /// The rows of a list of names by table, after a comparison with those by index, in one snapshot.
    async fn in_tables(
        &self,
        [by_index, by_table]: [&'static String; 2],
        backend: &BackendName,
        names: &[&str],
    ) -> Result<Vec<Row>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let values = params![backend, json(&names)];
        let (by_index, by_table) = (Statement::new(by_index, values.clone()), Statement::new(by_table, values));
        let (indexed, scanned) = self.driver.read_both_ways(by_index, by_table).await?;
        if indexed.len() < scanned.len() {
            let why = format!("indexes show {} rows that name bytes, their tables {}", indexed.len(), scanned.len());
            self.condition.damage(&why);
            return Err(Error::Corrupt(why));
        }
        Ok(scanned)
    }
}
