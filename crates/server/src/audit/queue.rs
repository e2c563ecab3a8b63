//! The bounded queue of audit lines: in order, taken in batches by the writer thread.

use std::fs::File;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// From this size on, callers that can wait do so.
const WAIT_BYTES: usize = 4 << 20;
/// Lines beyond this size are dropped.
const BYTES_MAX: usize = 16 << 20;
/// How long the writer collects lines for a batch, unless [`BATCH_BYTES`] arrive earlier.
const BATCH_DELAY: Duration = Duration::from_millis(50);
const BATCH_BYTES: usize = 256 << 10;
/// How long callers wait for capacity at most.
const CAPACITY_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long callers wait for the disk at most.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
struct QueueState {
    bytes: Vec<u8>,
    lines: u64,
    lines_pushed: u64,
    /// Written or lost.
    lines_written: u64,
    switch: Option<FileSwitch>,
    /// The writer does not wait for [`BATCH_DELAY`].
    is_flushing: bool,
    is_closed: bool,
}

/// A new file, and how much of the queue still belongs to the old one.
struct FileSwitch {
    bytes: usize,
    lines: u64,
    file: File,
}

/// What the writer does next.
pub(super) struct LineBatch {
    /// Whole lines.
    pub(super) bytes: Vec<u8>,
    /// Their number.
    pub(super) lines: u64,
    /// The file for all later lines.
    pub(super) next_file: Option<File>,
}

impl QueueState {
    /// Everything queued, or everything that belongs to the old file.
    fn take(&mut self) -> LineBatch {
        let Some(FileSwitch { bytes, lines, file }) = self.switch.take() else {
            let (bytes, lines) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.lines));
            return LineBatch { bytes, lines, next_file: None };
        };
        let rest = self.bytes.split_off(bytes);
        self.lines -= lines;
        LineBatch { bytes: std::mem::replace(&mut self.bytes, rest), lines, next_file: Some(file) }
    }
}

/// Lines on their way to the file.
#[derive(Default)]
pub(super) struct LineQueue {
    state: Mutex<QueueState>,
    /// Wakes the writer.
    work: Condvar,
    /// Wakes threads in [`Self::flush`].
    flushed: Condvar,
    /// Wakes tasks in [`Self::written`].
    settled: Notify,
    /// Wakes tasks in [`Self::wait_for_capacity`].
    taken: Notify,
}

impl LineQueue {
    /// Appends a line; returns false if it was dropped.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.state.lock();
        if state.is_closed || state.bytes.len() + line.len() > BYTES_MAX {
            return false;
        }
        let before = state.bytes.len();
        state.bytes.extend_from_slice(line);
        state.lines += 1;
        state.lines_pushed += 1;
        // Waking the writer for every line would cost each request a context switch.
        if before == 0 || (before < BATCH_BYTES && state.bytes.len() >= BATCH_BYTES) {
            self.work.notify_one();
        }
        true
    }

    /// Waits up to [`CAPACITY_WAIT_MAX`] until the queue is below [`WAIT_BYTES`].
    pub(super) async fn wait_for_capacity(&self) {
        let waiting = async {
            loop {
                let taken = self.taken.notified();
                if self.state.lock().bytes.len() < WAIT_BYTES {
                    return;
                }
                taken.await;
            }
        };
        // After a timeout, the next push may still fit.
        tokio::time::timeout(CAPACITY_WAIT_MAX, waiting).await.unwrap_or_default();
    }

    /// Writes lines pushed from now on to another file.
    pub(super) fn switch_to(&self, file: File) {
        let mut state = self.state.lock();
        let (bytes, lines) = match &state.switch {
            Some(earlier) => (earlier.bytes, earlier.lines),
            None => (state.bytes.len(), state.lines),
        };
        state.switch = Some(FileSwitch { bytes, lines, file });
        state.is_flushing = true;
        self.work.notify_one();
    }

    /// Blocks until every line pushed so far is written, up to [`FLUSH_WAIT_MAX`].
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        let (target, mut waited) = (state.lines_pushed, Duration::ZERO);
        while state.lines_written < target && waited < FLUSH_WAIT_MAX {
            state.is_flushing = true;
            self.work.notify_one();
            self.flushed.wait_for(&mut state, BATCH_DELAY);
            waited += BATCH_DELAY;
        }
    }

    /// Like [`Self::flush`], without blocking the thread.
    pub(super) async fn written(&self) {
        let target = self.state.lock().lines_pushed;
        let waiting = async {
            loop {
                let settled = self.settled.notified();
                if !self.flush_to(target) {
                    return;
                }
                settled.await;
            }
        };
        // Lines that a hanging disk does not take are counted as dropped once the queue is full.
        tokio::time::timeout(FLUSH_WAIT_MAX, waiting).await.unwrap_or_default();
    }

    /// Makes the writer write at once if fewer than `target` lines are written; returns whether that is so.
    fn flush_to(&self, target: u64) -> bool {
        let mut state = self.state.lock();
        let is_behind = state.lines_written < target;
        if is_behind {
            state.is_flushing = true;
            self.work.notify_one();
        }
        is_behind
    }

    /// Accepts no more lines; the writer ends after the last one.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.work.notify_all();
    }

    /// Blocks until a batch is ready; None once the queue is closed and empty.
    pub(super) fn take(&self) -> Option<LineBatch> {
        let is_idle = |state: &mut QueueState| state.bytes.is_empty() && state.switch.is_none() && !state.is_closed;
        let mut state = self.state.lock();
        self.work.wait_while(&mut state, is_idle);
        let is_collecting =
            |state: &mut QueueState| !state.is_flushing && !state.is_closed && state.bytes.len() < BATCH_BYTES;
        self.work.wait_while_for(&mut state, is_collecting, BATCH_DELAY);
        if state.is_closed && state.bytes.is_empty() && state.switch.is_none() {
            return None;
        }
        state.is_flushing = false;
        let batch = state.take();
        drop(state);
        self.taken.notify_waiters();
        Some(batch)
    }

    /// The lines of a batch are written or lost.
    pub(super) fn settle(&self, lines: u64) {
        self.state.lock().lines_written += lines;
        self.flushed.notify_all();
        self.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, CAPACITY_WAIT_MAX, LineQueue, WAIT_BYTES};

    #[tokio::test(start_paused = true)]
    async fn full_queue_delays_callers_and_then_drops_lines() {
        let queue = LineQueue::default();
        assert!(queue.push(&vec![b'x'; WAIT_BYTES]));
        let began = tokio::time::Instant::now();
        queue.wait_for_capacity().await;
        assert_eq!(began.elapsed(), CAPACITY_WAIT_MAX);
        assert!(queue.push(b"callers that cannot wait may still push.\n"));
        assert!(!queue.push(&vec![b'x'; BYTES_MAX]));
        let batch = queue.take().unwrap();
        assert_eq!((batch.lines, batch.bytes.len()), (2, WAIT_BYTES + 41));
        queue.wait_for_capacity().await;
        assert_eq!(began.elapsed(), CAPACITY_WAIT_MAX);
    }

    #[test]
    fn closed_queue_returns_its_lines_and_accepts_none() {
        let queue = LineQueue::default();
        assert!(queue.push(b"a\n"));
        queue.close();
        assert!(!queue.push(b"b\n"));
        assert_eq!(queue.take().unwrap().bytes, b"a\n");
        assert!(queue.take().is_none());
    }
}
