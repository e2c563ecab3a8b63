//! Tests of reads without a thread, on the file system of the folder for temporary files.

use std::path::Path;

use bytes::Bytes;
use rustix::fs::Mode;

use super::{FILE, RESOLVE, SIZE_MAX, is_local, read, read_span};
use crate::fs::{Fs, FsOptions};
use crate::{Backend as _, Span, body};

async fn stored(root: &Path, key: &str, size: usize) -> Fs {
    let fs = Fs::open("disk".parse().expect("valid"), root.to_path_buf(), FsOptions::default());
    fs.put(key, size as u64, body::whole(Bytes::from(vec![7; size]))).await.expect("stored");
    fs
}

/// True if the kernel and the file system can look a name up and read it only in memory.
fn is_possible(folder: &Path) -> bool {
    let root = rustix::fs::open(folder, super::FOLDER, Mode::empty()).expect("opened");
    std::fs::write(folder.join("probe"), "x").expect("written");
    let file = rustix::fs::openat2(&root, "probe", FILE, Mode::empty(), RESOLVE);
    is_local(&root) && file.is_ok_and(|file| read_span(&file, 0, 1).is_some())
}

#[tokio::test]
async fn bytes_that_were_just_written_are_read_without_a_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = stored(folder.path(), "bucket/deep/key", 5_000).await;
    let whole = read(&fs.state, "bucket/deep/key", None);
    assert_eq!(whole.is_some(), is_possible(folder.path()));
    assert!(whole.is_none_or(|bytes| bytes == vec![7; 5_000]));
    let span = Some(Span { offset: 4_990, length: 10 });
    assert!(read(&fs.state, "bucket/deep/key", span).is_none_or(|bytes| bytes == vec![7; 10]));
}

#[tokio::test]
async fn what_needs_a_thread_or_an_error_is_left_to_the_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = stored(folder.path(), "bucket/key", 5_000).await;
    let size = usize::try_from(SIZE_MAX).expect("small");
    fs.put("large", SIZE_MAX + 1, body::whole(Bytes::from(vec![7; size + 1]))).await.expect("stored");
    std::os::unix::fs::symlink(folder.path().join("bucket"), folder.path().join("link")).expect("linked");
    for key in ["large", "absent", "bucket", "link/key", "bucket/../bucket/key", "bucket//key"] {
        assert_eq!(read(&fs.state, key, None), None, "{key}");
    }
    let beyond = Some(Span { offset: 4_999, length: 2 });
    assert_eq!(read(&fs.state, "bucket/key", beyond), None);
    let large = Some(Span { offset: 0, length: SIZE_MAX + 1 });
    assert_eq!(read(&fs.state, "large", large), None);
}

#[tokio::test]
async fn another_folder_at_the_path_is_not_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, aside) = (folder.path().join("disk"), folder.path().join("aside"));
    std::fs::create_dir(&root).expect("created");
    let fs = stored(&root, "key", 10).await;
    std::fs::rename(&root, &aside).expect("unmounted");
    assert_eq!(read(&fs.state, "key", None), None, "nothing is at the path");
    std::fs::create_dir(&root).expect("created");
    assert_eq!(read(&fs.state, "key", None), None, "another folder is at the path");
}
