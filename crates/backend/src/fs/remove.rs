//! Deleting in batches: both names of every key, each folder made durable once, then the answers.

use std::collections::BTreeMap;

use rustix::fd::OwnedFd;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::Shared;
use super::failure::{failure, leads_nowhere};
use super::folders::{Location, open_folder, open_parent};
use super::write::draft_name;
use crate::{DRAFTS, DeleteAnswer, Error};

pub(super) fn delete_batch(shared: &Shared, keys: &[String]) -> Vec<DeleteAnswer> {
    let mut answers = vec![DeleteAnswer::Unknown("not reached".to_owned()); keys.len()];
    let root = match shared.root.enter() {
        Ok(root) => root,
        Err(error) => return vec![refusal(&error); keys.len()],
    };
    let drafts = remove_drafts(&root, keys);
    for (folder, positions) in by_folder(keys) {
        remove_in_folder(&root, folder, &positions, keys, &mut answers);
        remove_emptied(&root, folder);
    }
    for (answer, draft) in answers.iter_mut().zip(drafts) {
        merge_draft(answer, draft);
    }
    prove_absence(shared, &mut answers);
    answers
}

fn refusal(error: &Error) -> DeleteAnswer {
    match error {
        Error::Refused(why) => DeleteAnswer::Refused(why.clone()),
        Error::Unknown(why) => DeleteAnswer::Unknown(why.clone()),
        Error::NotFound | Error::Body(_) | Error::NoRoom(_) | Error::Away(_) | Error::Unsupported(_) => {
            DeleteAnswer::Away(error.to_string())
        }
    }
}

/// One folder at a time keeps the number of open handles small however many folders a batch has.
fn by_folder(keys: &[String]) -> BTreeMap<&str, Vec<usize>> {
    let mut folders: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, key) in keys.iter().enumerate() {
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push(position);
    }
    folders
}

fn remove_in_folder(root: &OwnedFd, folder: &str, positions: &[usize], keys: &[String], answers: &mut [DeleteAnswer]) {
    let first = match Location::parse(&keys[positions[0]]) {
        Ok(location) => location,
        Err(error) => return fill(answers, positions, &refusal(&error)),
    };
    let parent = match open_parent(root, &first) {
        Ok(parent) => parent,
        Err(errno) if leads_nowhere(errno) => return fill(answers, positions, &DeleteAnswer::Absent),
        Err(errno) => return fill(answers, positions, &refusal(&failure("opening a folder", errno))),
    };
    for &position in positions {
        answers[position] = match Location::parse(&keys[position]) {
            Ok(location) => remove(&parent, location.name),
            Err(error) => refusal(&error),
        };
    }
    // An earlier batch may have removed a name and died before it was durable, so the folder is
    // synced for names that are already absent as well.
    if let Err(errno) = rustix::fs::fsync(&parent) {
        let why = format!("deletes in {folder:?} may not be durable: {errno}");
        fill(answers, positions, &DeleteAnswer::Unknown(why));
    }
}

fn fill(answers: &mut [DeleteAnswer], positions: &[usize], answer: &DeleteAnswer) {
    for &position in positions {
        answers[position] = answer.clone();
    }
}

fn remove(folder: &OwnedFd, name: &str) -> DeleteAnswer {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => DeleteAnswer::Deleted,
        // A folder of that name holds other keys; the key itself is not there.
        Err(Errno::NOENT | Errno::ISDIR) => DeleteAnswer::Absent,
        Err(errno) => refusal(&failure("deleting", errno)),
    }
}

/// Removes the drafts of all keys; the answers are in the order of the keys.
fn remove_drafts(root: &OwnedFd, keys: &[String]) -> Vec<DeleteAnswer> {
    let location = Location { folders: DRAFTS.split_terminator('/').collect(), name: "" };
    let folder = match open_parent(root, &location) {
        Ok(folder) => folder,
        Err(errno) if leads_nowhere(errno) => return vec![DeleteAnswer::Absent; keys.len()],
        Err(errno) => return vec![refusal(&failure("opening the drafts", errno)); keys.len()],
    };
    let answers: Vec<_> = keys.iter().map(|key| remove(&folder, &draft_name(key))).collect();
    match rustix::fs::fsync(&folder) {
        Ok(()) => answers,
        Err(errno) => vec![DeleteAnswer::Unknown(format!("drafts may not be removed durably: {errno}")); keys.len()],
    }
}

/// A key is gone when both of its names are.
fn merge_draft(answer: &mut DeleteAnswer, draft: DeleteAnswer) {
    let gone = matches!(answer, DeleteAnswer::Deleted | DeleteAnswer::Absent);
    if gone && draft != DeleteAnswer::Absent {
        *answer = draft;
    }
}

/// Removes the folder and its ancestors as long as they are empty. That is tidiness: a failure is
/// no reason to fail the batch, and the next delete below tries again.
fn remove_emptied(root: &OwnedFd, folder: &str) {
    let mut folder = folder;
    while !folder.is_empty() && !format!("{folder}/").starts_with(RESERVED_PREFIX) {
        let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        let location = Location { folders: above.split_terminator('/').collect(), name };
        let removed =
            open_parent(root, &location).and_then(|parent| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => folder = above,
            Err(_) => return,
        }
    }
}

/// A disk that vanished during the batch makes every absence worthless.
fn prove_absence(shared: &Shared, answers: &mut [DeleteAnswer]) {
    if let Err(error) = shared.root.enter() {
        for answer in answers.iter_mut().filter(|answer| **answer == DeleteAnswer::Absent) {
            *answer = refusal(&error);
        }
    }
}

/// Removes one file below a folder of s3o's own, whether it is there or not.
pub(super) fn remove_own(root: &OwnedFd, folder: &str, name: &str) -> Result<(), Errno> {
    let own = open_folder(root, RESERVED_PREFIX.trim_end_matches('/'))?;
    match rustix::fs::unlinkat(open_folder(own, folder)?, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}
