//! Plans the moves of one pass: reads the copies of backends page by page, the largest of a page first.

use std::collections::HashMap;

use s3o_catalog::{Catalog, CopyWork, CountedLocation};
use s3o_model::content::Location;
use s3o_model::names::BackendName;
use s3o_model::rebalance::{BackendLoad, MovableCopy, RebalancePass, RebalanceRules};

use crate::Error;

/// Number of pages that one batch reads: most copies may stay where they are, and a tick must end.
const PAGES_MAX: usize = 20;

/// The moves of one pass, in batches.
pub struct RebalancePlanner {
    pass: RebalancePass,
    sources: HashMap<BackendName, SourcePages>,
    batch_size: usize,
    /// Moves that were planned and not started.
    rest: Vec<PlannedMove>,
}

/// The copies of one backend, in pages.
#[derive(Default)]
struct SourcePages {
    /// The rest of the current page, smallest first.
    page: Vec<CopyWork>,
    /// The key at which the next page begins.
    position: String,
    is_last: bool,
}

/// Some moves of a pass.
#[derive(Default)]
pub(super) struct MoveBatch {
    pub moves: Vec<PlannedMove>,
    /// True if the pass is complete.
    pub is_last: bool,
}

/// One copy, and the backend that takes it.
#[derive(Clone)]
pub(super) struct PlannedMove {
    pub work: CopyWork,
    pub copy: Location,
    pub to: BackendName,
}

impl RebalancePlanner {
    pub(super) fn new(rules: RebalanceRules, loads: Vec<BackendLoad>, batch_size: usize) -> Self {
        Self {
            pass: RebalancePass::new(rules, loads),
            sources: HashMap::new(),
            batch_size: batch_size.max(1),
            rest: Vec::new(),
        }
    }

    pub(super) fn refresh(&mut self, loads: Vec<BackendLoad>) {
        self.pass.refresh(loads);
    }

    /// Returns moves that were not started; they are first in the next batch.
    pub(super) fn put_back(&mut self, rest: Vec<PlannedMove>) {
        self.rest = rest;
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.pass.is_cut()
    }

    /// Plans the next moves. There may be none although the pass is not complete.
    pub(super) async fn next_batch(&mut self, catalog: &Catalog) -> Result<MoveBatch, Error> {
        let moves = std::mem::take(&mut self.rest);
        let (mut batch, mut pages) = (MoveBatch { moves, is_last: false }, 0);
        while batch.moves.len() < self.batch_size && pages < PAGES_MAX {
            let Some(source) = self.pass.next_source().cloned() else {
                batch.is_last = true;
                break;
            };
            let copies = self.sources.entry(source.clone()).or_default();
            match copies.page.pop() {
                Some(work) => batch.moves.extend(plan(&mut self.pass, &source, work)),
                None if copies.is_last => self.pass.exhaust(&source),
                None => {
                    copies.read(catalog, &source, self.batch_size).await?;
                    pages += 1;
                }
            }
        }
        Ok(batch)
    }
}

impl SourcePages {
    async fn read(&mut self, catalog: &Catalog, source: &BackendName, size: usize) -> Result<(), Error> {
        let mut page = catalog.contents_on(source, &self.position, size).await?;
        self.is_last = page.len() < size;
        let last = page.last().and_then(|work| copy_on(work, source));
        self.position = last.map(|copy| copy.location.physical_key.clone()).unwrap_or_default();
        // A stable sort: copies of one size are moved in the order of their keys.
        page.reverse();
        page.sort_by_key(|work| work.size_bytes);
        self.page = page;
        Ok(())
    }
}

fn copy_on<'a>(work: &'a CopyWork, name: &BackendName) -> Option<&'a CountedLocation> {
    work.copies.iter().find(|copy| copy.location.backend == *name)
}

/// A move of this copy, if it counts, its content lacks no other copy, and a backend takes it.
fn plan(pass: &mut RebalancePass, source: &BackendName, work: CopyWork) -> Option<PlannedMove> {
    let copy = copy_on(&work, source).filter(|copy| copy.counts)?.location.clone();
    if work.is_gone || work.counting() < work.factor {
        return None;
    }
    let holders = work.copies.iter().map(|copy| &copy.location.backend).collect();
    let movable = MovableCopy { content: work.content, size_bytes: work.size_bytes, holders };
    let to = pass.place(source, &movable)?;
    Some(PlannedMove { work, copy, to })
}
