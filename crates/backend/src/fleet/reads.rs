//! Reads in progress, by which equally good backends share the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use s3o_model::names::BackendName;

use super::Fleet;

/// A read in progress; dropping it ends it.
#[derive(Debug)]
pub struct ReadInProgress(Arc<AtomicUsize>);

impl Drop for ReadInProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fleet {
    /// Counts a read of content that has several copies, until the returned value is dropped.
    #[must_use]
    pub fn begin_read(&self, name: &BackendName) -> Option<ReadInProgress> {
        let reads = &self.member(name)?.reads;
        reads.fetch_add(1, Ordering::Relaxed);
        Some(ReadInProgress(Arc::clone(reads)))
    }

    /// Number of these reads on a backend.
    #[must_use]
    pub fn reads_in_progress(&self, name: &BackendName) -> usize {
        self.member(name).map_or(0, |member| member.reads.load(Ordering::Relaxed))
    }
}
