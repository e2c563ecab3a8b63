//! The thread that writes the audit file.
//!
//! If a crash or a full disk truncated a line, the next line still starts on a line of its own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use prometheus_client::metrics::counter::Counter;

use super::queue::{LineBatch, LineQueue};

/// Opens the file for appending, with mode 0600; ends a truncated last line.
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

/// Writes batches until the queue is closed. Runs on the writer thread.
pub(super) fn run(queue: &LineQueue, mut file: File, dropped: &Counter) {
    let mut is_truncated = false;
    while let Some(LineBatch { bytes, lines, next_file }) = queue.take() {
        let start: &[u8] = if is_truncated { b"\n" } else { b"" };
        match file.write_all(start).and_then(|()| file.write_all(&bytes)) {
            Ok(()) => is_truncated = false,
            Err(error) => {
                is_truncated = true;
                dropped.inc_by(lines);
                tracing::error!(%error, lines, "audit lines lost, cannot write audit file");
            }
        }
        queue.settle(lines);
        if let Some(next) = next_file {
            file = next;
            is_truncated = false;
        }
    }
}
