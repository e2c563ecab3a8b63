//! Deletes of files that other programs may rewrite.
//!
//! The file is compared and then deleted by its name. No call does both at once: a program that replaces the file in
//! between loses its new bytes. The time between the two is that of one system call.

use rustix::fs::AtFlags;
use s3o_model::target::ExpectedBytes;

use super::FsState;
use super::failure::{failure, is_missing};
use super::folders::{KeyPath, open_parent};
use super::read::{is_file, size_of, stamp};
use super::remove::{prove_absence, refusal, remove, remove_emptied};
use crate::{DeleteAnswer, ExpectedDelete};

pub(super) fn delete(state: &FsState, key: &str, expected: &ExpectedBytes) -> ExpectedDelete {
    match compare_and_delete(state, key, expected) {
        ExpectedDelete::Answered(answer) => {
            let mut answers = [answer];
            prove_absence(state, &mut answers);
            let [answer] = answers;
            ExpectedDelete::Answered(answer)
        }
        ExpectedDelete::Changed(why) => ExpectedDelete::Changed(why),
    }
}

fn compare_and_delete(state: &FsState, key: &str, expected: &ExpectedBytes) -> ExpectedDelete {
    let entered = KeyPath::parse(key).and_then(|path| Ok((path, state.root.enter_trusted()?)));
    let (path, root) = match entered {
        Ok(entered) => entered,
        Err(error) => return ExpectedDelete::Answered(refusal(&error)),
    };
    let found = open_parent(&root, &path).and_then(|parent| {
        let stat = rustix::fs::statat(&parent, path.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((parent, stat))
    });
    let (parent, stat) = match found {
        Ok(found) => found,
        Err(errno) if is_missing(errno) => return ExpectedDelete::Answered(DeleteAnswer::Absent),
        Err(errno) => return ExpectedDelete::Answered(refusal(&failure("reading the metadata of a file", errno))),
    };
    if !is_file(&stat) {
        return ExpectedDelete::Changed("no file has this name any more".to_owned());
    }
    let there = ExpectedBytes { size_bytes: size_of(&stat), etag: None, file: Some(stamp(&stat)) };
    if let Some(why) = expected.difference(&there) {
        return ExpectedDelete::Changed(why);
    }
    let answer = remove(&parent, path.name);
    if let Err(errno) = rustix::fs::fsync(&parent) {
        let why = format!("the delete of {key:?} may not be durable: {errno}");
        return ExpectedDelete::Answered(DeleteAnswer::Unknown(why));
    }
    remove_emptied(&root, key.rsplit_once('/').map_or("", |(folder, _)| folder));
    ExpectedDelete::Answered(answer)
}
