//! What is thought of copies: proven before a write that was not stored relies on them, and suspect once somebody found
//! that they are not what was written.
//!
//! A suspect copy is still read where there is no better one, and makes way for the next write of the same content.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use s3o_model::content::Location;
use s3o_model::ids::ContentId;
use s3o_model::proof::Proof;

use crate::error::Error;
use crate::sharing::Known;
use crate::unit::Unit;
use crate::{Catalog, params};

/// What is thought of copies.
#[async_trait]
pub trait Copies: Send + Sync {
    /// Calls a copy suspect: its bytes are proven to be gone or not what was written. `false` if it is no longer a copy
    /// of that content, or not taken to be good any more.
    async fn suspect(&self, content: ContentId, copy: &Location) -> Result<bool, Error>;
}

/// Looks at copies where they lie.
#[async_trait]
pub trait CopyProver: Send + Sync {
    /// Looks at a copy of so many bytes. Asked between transactions, never within one.
    async fn prove(&self, copy: &Location, size_bytes: u64) -> Proof;
}

/// Who looks, if anybody does. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Eyes(Arc<OnceLock<Arc<dyn CopyProver>>>);

const SUSPECT: &str = "UPDATE object_locations SET state = 'suspect' \
     WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 AND state = 'present'";

#[async_trait]
impl Copies for Catalog {
    async fn suspect(&self, content: ContentId, copy: &Location) -> Result<bool, Error> {
        let mut unit = Unit::new("suspect");
        // Whoever joins content holds it, and counts its good copies more than once.
        unit.lock("SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
        let called = unit.run(SUSPECT, params![content, &copy.backend, copy.physical_key.as_str()]);
        Ok(self.write(unit).await?[called].changed > 0)
    }
}

impl Catalog {
    /// Has the copies of content looked at, from now on, before a write joins it. The first one who asks is asked.
    /// Where nobody looks, what the rows say is taken for proven.
    pub fn prove_by(&self, prover: Arc<dyn CopyProver>) {
        self.eyes.0.get_or_init(|| prover);
    }

    /// Whether content lies where it should. Copies that are found bad on the way are suspect from now on.
    pub(crate) async fn prove(&self, known: &Known) -> Result<Proof, Error> {
        let mut proofs = Vec::with_capacity(known.copies.len());
        for copy in &known.copies {
            let proof = match self.eyes.0.get() {
                Some(prover) => prover.prove(copy, known.size_bytes).await,
                None => Proof::Good,
            };
            match proof {
                Proof::Good => return Ok(Proof::Good),
                Proof::Bad => drop(self.suspect(known.content, copy).await?),
                Proof::Unclear => {}
            }
            proofs.push(proof);
        }
        Ok(Proof::of_content(&proofs))
    }
}
