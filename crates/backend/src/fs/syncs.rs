//! Syncs of folders that concurrent writers share: one fsync makes all names durable that were added before it began.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::root::FolderId;

/// The syncs of the folders of one root.
#[derive(Debug, Default)]
pub(super) struct FolderSyncs {
    /// Folders that are being synced. A handle of each waiting writer is open, so no other folder gets its identity.
    folders: Mutex<HashMap<FolderId, Arc<SharedSync>>>,
    /// Number of syncs that failed.
    failures: AtomicU64,
}

/// The syncs of one folder; one runs at a time.
#[derive(Debug, Default)]
struct SharedSync {
    state: Mutex<SyncState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct SyncState {
    /// Number of writers that have asked for a sync.
    arrived: u64,
    /// The sync of so many of them has succeeded.
    synced: u64,
    is_running: bool,
}

impl FolderSyncs {
    /// Number of syncs that failed so far. A writer reads it before it opens the folder.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// Returns after a sync of the folder that began after this call. The kernel reports a lost block to a handle that
    /// was open at that time. So a writer uses the sync of another handle only if none has failed since it opened its
    /// own.
    pub(super) fn sync(&self, folder: &OwnedFd, failures_before: u64) -> Result<(), Errno> {
        let id = FolderId::of(folder)?;
        let shared = Arc::clone(self.folders.lock().entry(id).or_default());
        let sync = || {
            rustix::fs::fsync(folder).inspect_err(|_| {
                self.failures.fetch_add(1, Ordering::SeqCst);
            })
        };
        let synced = shared.run(sync, || self.failures() == failures_before);
        let mut folders = self.folders.lock();
        // One reference is in the map and one here: no other writer waits.
        if Arc::strong_count(&shared) == 2 {
            folders.remove(&id);
        }
        synced
    }
}

impl SharedSync {
    /// Runs `sync`, or waits for one that another writer began after this call, if `may_share`.
    fn run(&self, sync: impl FnOnce() -> Result<(), Errno>, may_share: impl Fn() -> bool) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.arrived += 1;
        let own = state.arrived;
        while state.is_running {
            self.ended.wait(&mut state);
            if state.synced >= own && may_share() {
                return Ok(());
            }
        }
        state.is_running = true;
        let covered = state.arrived;
        drop(state);
        let result = sync();
        let mut state = self.state.lock();
        state.is_running = false;
        if result.is_ok() {
            state.synced = covered;
        }
        drop(state);
        self.ended.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{JoinHandle, spawn, yield_now};

    use rustix::io::Errno;

    use super::SharedSync;

    /// Writers of one folder; the first sync waits until the test lets it end.
    #[derive(Default)]
    struct Writers {
        shared: Arc<SharedSync>,
        syncs: Arc<AtomicUsize>,
        threads: Vec<JoinHandle<Result<(), Errno>>>,
    }

    impl Writers {
        fn arrive(&mut self, may_share: bool, sync: impl FnOnce() -> Result<(), Errno> + Send + 'static) {
            let (shared, syncs) = (Arc::clone(&self.shared), Arc::clone(&self.syncs));
            let counted = move || {
                syncs.fetch_add(1, Ordering::SeqCst);
                sync()
            };
            self.threads.push(spawn(move || shared.run(counted, || may_share)));
            while self.shared.state.lock().arrived < self.threads.len() as u64 {
                yield_now();
            }
        }

        /// A writer whose sync ends with what the test sends.
        fn arrive_first(&mut self) -> Sender<Result<(), Errno>> {
            let (end, ended) = channel();
            self.arrive(true, move || ended.recv().expect("the test sends the end"));
            while !self.shared.state.lock().is_running {
                yield_now();
            }
            end
        }

        /// The results in the order of arrival, and the number of syncs.
        fn results(self) -> (Vec<Result<(), Errno>>, usize) {
            let results = self.threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            (results, self.syncs.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn writers_that_arrive_during_a_sync_share_the_next_one() {
        let mut writers = Writers::default();
        let end = writers.arrive_first();
        for _ in 0..3 {
            writers.arrive(true, || Ok(()));
        }
        end.send(Ok(())).expect("the first sync runs");
        assert_eq!(writers.results(), (vec![Ok(()); 4], 2));
    }

    #[test]
    fn failed_sync_fails_only_its_own_writer() {
        let mut writers = Writers::default();
        let end = writers.arrive_first();
        writers.arrive(true, || Ok(()));
        end.send(Err(Errno::IO)).expect("the first sync runs");
        assert_eq!(writers.results(), (vec![Err(Errno::IO), Ok(())], 2));
    }

    #[test]
    fn writer_that_may_not_share_syncs_itself() {
        let mut writers = Writers::default();
        let end = writers.arrive_first();
        for _ in 0..3 {
            writers.arrive(false, || Ok(()));
        }
        end.send(Ok(())).expect("the first sync runs");
        assert_eq!(writers.results(), (vec![Ok(()); 4], 4));
    }
}
