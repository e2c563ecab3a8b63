//! Reads the configuration file, which must be a regular file of at most 1 MiB.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

const BYTES_MAX: u64 = 1 << 20;

/// The text of the file, or a message that says why it cannot be read.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let message = |error: std::io::Error| error.to_string();
    // Before the file is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(message)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(message)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err("it is larger than 1 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, read};
    use std::path::Path;

    #[test]
    fn only_a_regular_file_of_bounded_size_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s3o.yaml");
        let written = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            read(&path)
        };
        let largest = vec![b'#'; usize::try_from(BYTES_MAX).expect("small")];
        assert_eq!(written(b"a: b").as_deref(), Ok("a: b"));
        assert_eq!(written(&largest).map(|text| text.len()), Ok(largest.len()));
        assert_eq!(written(&[largest, vec![b'#']].concat()), Err("it is larger than 1 MiB".to_owned()));
        assert!(written(b"\xff").expect_err("not text").contains("utf-8"));
        for other in [folder.path(), Path::new("/dev/zero")] {
            assert_eq!(read(other), Err("it is not a regular file".to_owned()), "{}", other.display());
        }
        assert!(read(&folder.path().join("missing")).is_err());
    }
}
