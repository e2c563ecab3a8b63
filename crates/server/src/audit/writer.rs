//! The one thread that writes the audit file.
//!
//! A line stands alone: where a crash or a full disk cut one short, the next begins a line of its
//! own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use prometheus_client::metrics::counter::Counter;

use super::queue::{Batch, Queue};

/// Opens the file for appending, readable by its owner alone.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

/// Writes batches until the queue is closed.
pub(super) fn run(queue: &Queue, mut file: File, dropped: &Counter) {
    let mut torn = false;
    while let Some(Batch { bytes, lines, next_file }) = queue.take() {
        let start: &[u8] = if torn { b"\n" } else { b"" };
        match file.write_all(start).and_then(|()| file.write_all(&bytes)) {
            Ok(()) => torn = false,
            Err(error) => {
                torn = true;
                dropped.inc_by(lines);
                tracing::error!(%error, lines, "audit lines lost");
            }
        }
        queue.settle(lines);
        if let Some(next) = next_file {
            file = next;
            torn = false;
        }
    }
}
