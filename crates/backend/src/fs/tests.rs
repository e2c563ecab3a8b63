//! Tests of what only a folder backend has: mounts, drafts, empty folders, symbolic links.

use std::path::Path;

use bytes::Bytes;
use futures_util::stream;

use super::{Fs, FsOptions};
use crate::identity::IDENTITY_KEY;
use crate::{Backend, BodyError, DRAFTS, DeleteAnswer, DeleteKey, Error, Probe, body};

fn open(root: &Path) -> Fs {
    Fs::open("disk".parse().expect("valid"), root.to_owned(), FsOptions::default())
}

fn delete_target(key: &str) -> Vec<DeleteKey> {
    vec![DeleteKey { key: key.to_owned(), version_id: None }]
}

async fn put(fs: &Fs, key: &str) -> Result<crate::Written, Error> {
    fs.put(key, 3, body::whole(Bytes::from("abc"))).await
}

#[tokio::test]
async fn missing_root_is_away_until_it_is_mounted() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("disk");
    let fs = open(&root);
    assert!(matches!(put(&fs, "b/k").await, Err(Error::Away(_))));
    assert!(matches!(fs.probe("b/k".into()).await, Probe::Unknown(_)));
    assert!(matches!(fs.list("", None, 10).await, Err(Error::Away(_))));
    assert!(matches!(fs.delete_batch(&delete_target("b/k")).await[0], DeleteAnswer::Away(_)));
    assert!(!root.exists());
    std::fs::create_dir(&root).expect("mounting");
    put(&fs, "b/k").await.expect("mounted");
}

#[tokio::test]
async fn exchanged_disk_takes_writes_and_deletes_only_once_it_is_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, right, wrong) = (folder.path().join("disk"), folder.path().join("right"), folder.path().join("wrong"));
    for (root, text) in [(&right, "ours"), (&wrong, "theirs")] {
        std::fs::create_dir(root).expect("a disk");
        open(root).write_own(IDENTITY_KEY, Bytes::from(text)).await.expect("marked");
    }
    std::os::unix::fs::symlink(&wrong, &path).expect("mounted");
    let fs = open(&path);
    assert_eq!(fs.read_own(IDENTITY_KEY).await.expect("readable"), Some(Bytes::from("theirs")));
    std::fs::remove_file(&path).expect("unmounted");
    std::os::unix::fs::symlink(&right, &path).expect("mounted");
    assert!(fs.store_changed().await);
    assert_eq!(fs.read_own(IDENTITY_KEY).await.expect("readable"), Some(Bytes::from("ours")));
    assert!(matches!(put(&fs, "b/k").await, Err(Error::Away(_))));
    assert!(matches!(fs.write_own(IDENTITY_KEY, Bytes::from("raised")).await, Err(Error::Away(_))));
    fs.reopen_store().await.expect("reopened");
    assert!(!fs.store_changed().await);
    std::fs::write(right.join("old"), "abc").expect("a file of an earlier time");
    assert!(matches!(put(&fs, "b/k").await, Err(Error::Away(_))), "its identity was not compared");
    assert!(matches!(fs.delete_batch(&delete_target("old")).await[0], DeleteAnswer::Away(_)));
    assert!(right.join("old").exists());
    fs.write_own(IDENTITY_KEY, Bytes::from("raised")).await.expect("the identity can be written");
    fs.trust_store().await;
    put(&fs, "b/k").await.expect("the right disk");
    assert_eq!(fs.delete_batch(&delete_target("old")).await, [DeleteAnswer::Deleted]);
    assert!(right.join("b/k").exists() && !wrong.join("b").exists());
}

#[tokio::test]
async fn root_is_created_only_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = FsOptions { create: true, ..FsOptions::default() };
    let fs = Fs::open("disk".parse().expect("valid"), folder.path().join("deep/disk"), options);
    put(&fs, "b/k").await.expect("made");
    std::fs::remove_dir_all(folder.path().join("deep")).expect("unmounting");
    assert!(matches!(put(&fs, "b/l").await, Err(Error::Away(_))));
    assert!(!folder.path().join("deep").exists());
}

#[tokio::test]
async fn another_folder_at_the_same_path_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, unmounted) = (folder.path().join("disk"), folder.path().join("unmounted"));
    std::fs::create_dir(&root).expect("a root");
    let fs = open(&root);
    put(&fs, "b/k").await.expect("written");
    fs.write_own(IDENTITY_KEY, Bytes::from("m1")).await.expect("written");
    std::fs::rename(&root, &unmounted).expect("unmounting");
    assert!(!fs.store_changed().await, "nothing exists at the path");
    std::fs::create_dir(&root).expect("a bare mount point");
    assert!(matches!(fs.probe("b/k".into()).await, Probe::Unknown(_)));
    assert!(matches!(fs.get("b/k".into(), None).await, Err(Error::Away(_))));
    assert!(matches!(fs.write_own(IDENTITY_KEY, Bytes::from("m2")).await, Err(Error::Away(_))));
    assert_eq!(fs.read_own(IDENTITY_KEY).await.expect("readable"), None);
    // A clone has the same identity object, but it is another folder.
    std::fs::create_dir(root.join(".s3o")).expect("a folder");
    std::fs::write(root.join(IDENTITY_KEY), "m1").expect("a clone");
    assert!(matches!(fs.probe("b/k".into()).await, Probe::Unknown(_)));
    std::fs::remove_dir_all(&root).expect("unmounting");
    std::fs::rename(&unmounted, &root).expect("mounting");
    assert!(matches!(fs.probe("b/k".into()).await, Probe::Present(_)));
}

#[tokio::test]
async fn interrupted_body_leaves_no_draft() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = open(folder.path());
    let chunks = (0..40).map(|_| Ok(Bytes::from(vec![1; 64 * 1024])));
    let broken = chunks.chain([Err(BodyError::Broken("disconnected".to_owned()))]);
    let answer = fs.put("b/k", 100 * 64 * 1024, Box::pin(stream::iter(broken))).await;
    assert!(matches!(answer, Err(Error::Body(BodyError::Broken(_)))));
    assert!(fs.list(".s3o/tmp/", None, 10).await.expect("listed").items.is_empty());
    assert_eq!(fs.probe("b/k".into()).await, Probe::Absent);
}

#[tokio::test]
async fn delete_removes_the_draft_and_empty_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = open(folder.path());
    let key = "b/x/y/k~00000000000000000000000000000001";
    put(&fs, key).await.expect("written");
    std::fs::write(folder.path().join(".s3o/tmp/00000000000000000000000000000001"), "left").expect("a draft");
    assert_eq!(fs.delete_batch(&delete_target(key)).await, [DeleteAnswer::Deleted]);
    assert!(!folder.path().join("b").exists());
    assert!(fs.list(".s3o/tmp/", None, 10).await.expect("listed").items.is_empty());
    std::fs::write(folder.path().join(".s3o/tmp/00000000000000000000000000000001"), "left").expect("a draft");
    assert_eq!(fs.delete_batch(&delete_target(key)).await, [DeleteAnswer::Deleted]);
    assert_eq!(fs.delete_batch(&delete_target(key)).await, [DeleteAnswer::Absent]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writes_and_removals_of_empty_folders_succeed() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = std::sync::Arc::new(open(folder.path()));
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let fs = fs.clone();
        tasks.spawn(async move {
            for round in 0..50 {
                let key = format!("b/same/folder/{writer}-{round}");
                put(&fs, &key).await.expect("written");
                assert_eq!(fs.delete_batch(&delete_target(&key)).await, [DeleteAnswer::Deleted]);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    assert!(!folder.path().join("b").exists());
}

#[tokio::test]
async fn symbolic_links_are_not_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let outside = tempfile::tempdir().expect("a folder");
    std::fs::write(outside.path().join("k"), "secret").expect("a file");
    std::os::unix::fs::symlink(outside.path(), folder.path().join("b")).expect("a link");
    let fs = open(folder.path());
    assert!(put(&fs, "b/new").await.is_err());
    assert!(fs.get("b/k".into(), None).await.is_err());
    assert!(fs.list("", None, 10).await.expect("listed").items.is_empty());
    assert_ne!(fs.delete_batch(&delete_target("b/k")).await, [DeleteAnswer::Deleted]);
    assert!(outside.path().join("k").exists() && !outside.path().join("new").exists());
}

#[tokio::test]
async fn empty_folders_do_not_end_a_listing() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b", "c", "d"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    std::fs::write(folder.path().join("d/k"), "abc").expect("a file");
    std::fs::write(folder.path().join("e"), "abc").expect("a file");
    let fs = open(folder.path());
    let page = fs.list("", None, 1).await.expect("listed");
    assert_eq!((page.items[0].key.as_str(), page.truncated), ("d/k", true));
    let page = fs.list("", Some("d/k"), 1).await.expect("listed");
    assert_eq!((page.items[0].key.as_str(), page.truncated), ("e", false));
}

#[tokio::test]
async fn existing_key_is_not_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = open(folder.path());
    put(&fs, "b/k").await.expect("the first write");
    let again = fs.put("b/k", 5, body::whole(Bytes::from("other"))).await;
    assert!(matches!(again, Err(Error::Refused(_))), "{again:?}");
    assert_eq!(std::fs::read(folder.path().join("b/k")).expect("there"), b"abc");
    assert!(fs.list(".s3o/tmp/", None, 10).await.expect("listed").items.is_empty());
}

#[tokio::test]
async fn large_batch_is_answered_for_each_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = open(folder.path());
    let large = (0..300).map(|number| format!("b/large/{number}"));
    let keys: Vec<_> = large.chain((0..100).map(|number| format!("b/small-{number}/deep/k"))).collect();
    for key in keys.iter().step_by(3) {
        put(&fs, key).await.expect("written");
    }
    let batch: Vec<_> = keys.iter().flat_map(|key| delete_target(key)).collect();
    let answers = fs.delete_batch(&batch).await;
    assert_eq!(answers.len(), keys.len());
    for (position, answer) in answers.iter().enumerate() {
        let expected = if position % 3 == 0 { DeleteAnswer::Deleted } else { DeleteAnswer::Absent };
        assert_eq!(*answer, expected, "{}", keys[position]);
    }
    assert!(!folder.path().join("b").exists(), "empty folders are removed");
}

#[tokio::test]
async fn next_page_continues_with_the_names_that_were_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = open(folder.path());
    std::fs::create_dir(folder.path().join("b")).expect("a folder");
    let create = |name: &str| std::fs::write(folder.path().join("b").join(name), b"x").expect("a file");
    (0..300).for_each(|number| create(&format!("{number:03}")));
    let first = fs.list("", None, 100).await.expect("a page").items;
    create("150-new");
    std::fs::remove_file(folder.path().join("b/151")).expect("removed");
    let second = fs.list("", first.last().map(|item| item.key.as_str()), 100).await.expect("a page").items;
    let keys: Vec<&str> = second.iter().map(|item| item.key.as_str()).collect();
    assert_eq!((keys[0], keys[51], keys[99]), ("b/100", "b/152", "b/200"), "the folder was not read again");
    let again = fs.list("", Some("b/150"), 100).await.expect("a page").items;
    assert_eq!(again[0].key, "b/150-new", "another listing reads the folder");
}

#[tokio::test]
async fn drafts_are_listed_with_their_number_of_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = open(folder.path());
    let draft = folder.path().join(".s3o/tmp/0123");
    std::fs::create_dir_all(draft.parent().expect("a folder")).expect("a folder");
    std::fs::write(&draft, b"abc").expect("a draft");
    std::fs::create_dir(folder.path().join("b")).expect("a folder");
    std::fs::hard_link(&draft, folder.path().join("b/k~1")).expect("a living file");
    let found = fs.list(DRAFTS, None, 10).await.expect("a page").items;
    assert_eq!((found.len(), found[0].file.map(|file| file.links)), (1, Some(2)));
    assert_eq!(fs.delete_batch(&delete_target(&found[0].key)).await, [DeleteAnswer::Deleted]);
    assert_eq!(std::fs::read(folder.path().join("b/k~1")).expect("the living file"), b"abc");
    assert!(!draft.exists());
}
