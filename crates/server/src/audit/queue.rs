//! Lines on their way to the disk: bounded, in order, handed over in batches.

use std::fs::File;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

/// From here on, those who can wait do.
const WAIT_BYTES: usize = 4 << 20;
/// Beyond this, lines are lost.
const BYTES_MAX: usize = 16 << 20;
/// How long lines are gathered before they are written, unless this many bytes came together.
const GATHER: Duration = Duration::from_millis(50);
const BATCH_BYTES: usize = 256 << 10;
/// How long to wait for room.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long to wait for a disk that does not answer.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    lines: u64,
    lines_pushed: u64,
    lines_written: u64,
    switch: Option<Switch>,
    hurry: bool,
    closed: bool,
}

/// Another file, and how much still goes to the one before it.
struct Switch {
    bytes: usize,
    lines: u64,
    file: File,
}

/// What the writer does next.
pub(super) struct Batch {
    /// Whole lines.
    pub(super) bytes: Vec<u8>,
    /// How many.
    pub(super) lines: u64,
    /// The file for all lines after these.
    pub(super) next_file: Option<File>,
}

impl State {
    /// Everything there is, up to a change of files.
    fn take(&mut self) -> Batch {
        let Some(Switch { bytes, lines, file }) = self.switch.take() else {
            let (bytes, lines) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.lines));
            return Batch { bytes, lines, next_file: None };
        };
        let rest = self.bytes.split_off(bytes);
        self.lines -= lines;
        Batch { bytes: std::mem::replace(&mut self.bytes, rest), lines, next_file: Some(file) }
    }
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Tells the writer.
    work: Condvar,
    /// Tells those who wait for the disk.
    written: Condvar,
    /// Tells those of them who hold up no thread.
    settled: Notify,
    /// Tells those who wait for room.
    freed: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Takes a line; says whether it was kept.
    pub(super) fn push(&self, line: &[u8]) -> bool {
        let mut state = self.lock();
        if state.closed || state.bytes.len() + line.len() > BYTES_MAX {
            return false;
        }
        let before = state.bytes.len();
        state.bytes.extend_from_slice(line);
        state.lines += 1;
        state.lines_pushed += 1;
        // Waking the writer for every line would cost each request a switch of threads.
        if before == 0 || (before < BATCH_BYTES && state.bytes.len() >= BATCH_BYTES) {
            self.work.notify_one();
        }
        true
    }

    /// Waits, a moment at most, until there is room.
    pub(super) async fn room(&self) {
        let waiting = async {
            loop {
                let freed = self.freed.notified();
                if self.lock().bytes.len() < WAIT_BYTES {
                    return;
                }
                freed.await;
            }
        };
        // Whether there is room in the end shows when the next line comes.
        tokio::time::timeout(ROOM_WAIT_MAX, waiting).await.unwrap_or_default();
    }

    /// Lines pushed from now on go to another file.
    pub(super) fn switch_to(&self, file: File) {
        let mut state = self.lock();
        let (bytes, lines) = match &state.switch {
            Some(earlier) => (earlier.bytes, earlier.lines),
            None => (state.bytes.len(), state.lines),
        };
        state.switch = Some(Switch { bytes, lines, file });
        state.hurry = true;
        self.work.notify_one();
    }

    /// Waits until what was pushed before is written.
    pub(super) fn flush(&self) {
        let mut state = self.lock();
        let (target, mut waited) = (state.lines_pushed, Duration::ZERO);
        while state.lines_written < target && waited < FLUSH_WAIT_MAX {
            state.hurry = true;
            self.work.notify_one();
            self.written.wait_for(&mut state, GATHER);
            waited += GATHER;
        }
    }

    /// The same without holding up a thread.
    pub(super) async fn written(&self) {
        let target = self.lock().lines_pushed;
        let waiting = async {
            loop {
                let settled = self.settled.notified();
                if !self.hurry_to(target) {
                    return;
                }
                settled.await;
            }
        };
        // A disk that does not answer shows in the lines that are lost behind it.
        tokio::time::timeout(FLUSH_WAIT_MAX, waiting).await.unwrap_or_default();
    }

    /// Has the writer write without gathering, if so many lines are not written yet; says whether that is so.
    fn hurry_to(&self, target: u64) -> bool {
        let mut state = self.lock();
        let owed = state.lines_written < target;
        if owed {
            state.hurry = true;
            self.work.notify_one();
        }
        owed
    }

    /// Takes no more lines; the writer ends when it has written the last.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    /// The next batch, or `None` when there will be no more.
    pub(super) fn take(&self) -> Option<Batch> {
        let idle = |state: &mut State| state.bytes.is_empty() && state.switch.is_none() && !state.closed;
        let mut state = self.lock();
        self.work.wait_while(&mut state, idle);
        let gathering = |state: &mut State| !state.hurry && !state.closed && state.bytes.len() < BATCH_BYTES;
        self.work.wait_while_for(&mut state, gathering, GATHER);
        if state.closed && state.bytes.is_empty() && state.switch.is_none() {
            return None;
        }
        state.hurry = false;
        let batch = state.take();
        drop(state);
        self.freed.notify_waiters();
        Some(batch)
    }

    /// A batch came to its end, written or lost.
    pub(super) fn settle(&self, lines: u64) {
        self.lock().lines_written += lines;
        self.written.notify_all();
        self.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Queue, WAIT_BYTES};

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_makes_wait_and_then_refuses() {
        let queue = Queue::default();
        assert!(queue.push(&vec![b'x'; WAIT_BYTES]));
        let began = tokio::time::Instant::now();
        queue.room().await;
        assert_eq!(began.elapsed(), super::ROOM_WAIT_MAX);
        assert!(queue.push(b"those who cannot wait still find a place\n"));
        assert!(!queue.push(&vec![b'x'; BYTES_MAX]));
        let batch = queue.take().unwrap();
        assert_eq!((batch.lines, batch.bytes.len()), (2, WAIT_BYTES + 41));
        queue.room().await;
        assert_eq!(began.elapsed(), super::ROOM_WAIT_MAX);
    }

    #[test]
    fn a_closed_queue_hands_out_what_it_has_and_takes_nothing() {
        let queue = Queue::default();
        assert!(queue.push(b"a\n"));
        queue.close();
        assert!(!queue.push(b"b\n"));
        assert_eq!(queue.take().unwrap().bytes, b"a\n");
        assert!(queue.take().is_none());
    }
}
