//! Suspect copies: those of which a reader or a check found that they differ from what was written.
//!
//! A suspect copy is read only if there is no better one, and the next write of the same content replaces it.

use s3o_model::content::Location;
use s3o_model::ids::ContentId;

use crate::error::Error;
use crate::unit::{LockRank, Unit};
use crate::{Catalog, params};

const SUSPECT: &str = "UPDATE object_locations SET state = 'suspect' \
     WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 AND state = 'present'";

impl Catalog {
    /// Marks a copy as suspect: its bytes are proven to be missing or not what was written. `false` if it is no longer
    /// a copy of that content, or no longer in state `present`.
    pub async fn suspect(&self, content: ContentId, copy: &Location) -> Result<bool, Error> {
        let mut unit = Unit::new("suspect");
        // A commit that joins the content locks it and counts its good copies in several statements.
        unit.lock(LockRank::Content, "SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
        let marked = unit.run(SUSPECT, params![content, &copy.backend, copy.physical_key.as_str()]);
        Ok(self.write(unit).await?[marked].changed > 0)
    }
}
