//! Batch deletes: removes the file and the draft of every key, syncs each folder once, then answers.
//!
//! Several threads remove files: on a disk with online discard or behind a network a removal waits, and
//! one thread waits for one file at a time.

use std::collections::BTreeMap;
use std::thread;

use rustix::fd::OwnedFd;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::FsState;
use super::failure::{failure, is_missing};
use super::folders::{KeyPath, open_folder, open_parent};
use super::write::draft_name;
use crate::{DRAFTS, DeleteAnswer, Error};

/// Number of threads for one batch.
const THREADS_MAX: usize = 8;
/// Number of names that justify another thread.
const NAMES_MIN: usize = 16;

/// Position in the batch, and the answer for that key.
type PositionedAnswer = (usize, DeleteAnswer);

pub(super) fn delete_batch(state: &FsState, keys: &[String]) -> Vec<DeleteAnswer> {
    let mut answers = vec![DeleteAnswer::Unknown("the key was not processed".to_owned()); keys.len()];
    let root = match state.root.enter_trusted() {
        Ok(root) => root,
        Err(error) => return vec![refusal(&error); keys.len()],
    };
    let drafts = remove_drafts(&root, keys);
    let (large, small): (Vec<_>, Vec<_>) =
        by_folder(keys).into_iter().partition(|(_, positions)| positions.len() > 2 * NAMES_MIN);
    let mut answered: Vec<PositionedAnswer> = Vec::with_capacity(keys.len());
    for (folder, positions) in &large {
        answered.extend(remove_in_folder(&root, folder, positions, keys));
    }
    let names = small.iter().map(|(_, positions)| positions.len()).sum();
    answered.extend(in_parallel(&small, names, |folders| {
        folders.iter().flat_map(|(folder, positions)| remove_in_folder(&root, folder, positions, keys)).collect()
    }));
    for (position, answer) in answered {
        answers[position] = answer;
    }
    for (answer, draft) in answers.iter_mut().zip(drafts) {
        merge_draft(answer, draft);
    }
    prove_absence(state, &mut answers);
    answers
}

pub(super) fn refusal(error: &Error) -> DeleteAnswer {
    match error {
        Error::Refused(why) => DeleteAnswer::Refused(why.clone()),
        Error::Unknown(why) => DeleteAnswer::Unknown(why.clone()),
        Error::NotFound
        | Error::Body(_)
        | Error::NoSpace(_)
        | Error::Away(_)
        | Error::NotSent(_)
        | Error::Unsupported(_) => DeleteAnswer::Away(error.to_string()),
    }
}

/// Positions of the keys by folder: working on one folder at a time bounds the number of open handles.
fn by_folder(keys: &[String]) -> BTreeMap<&str, Vec<usize>> {
    let mut folders: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, key) in keys.iter().enumerate() {
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push(position);
    }
    folders
}

/// Splits a list over threads, one for every `NAMES_MIN` names.
fn in_parallel<T: Sync>(
    list: &[T],
    names: usize,
    work: impl Fn(&[T]) -> Vec<PositionedAnswer> + Sync,
) -> Vec<PositionedAnswer> {
    let threads = (names / NAMES_MIN).clamp(1, THREADS_MAX);
    let part = list.len().div_ceil(threads).max(1);
    if part >= list.len() {
        return work(list);
    }
    thread::scope(|scope| {
        let parts: Vec<_> = list.chunks(part).map(|part| scope.spawn(|| work(part))).collect();
        // The keys of a thread that panicked stay unknown.
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

/// Removes files of one folder, syncs it, and removes it if it is empty.
fn remove_in_folder(root: &OwnedFd, folder: &str, positions: &[usize], keys: &[String]) -> Vec<PositionedAnswer> {
    let all = |answer: &DeleteAnswer| positions.iter().map(|&position| (position, answer.clone())).collect();
    let first = match KeyPath::parse(&keys[positions[0]]) {
        Ok(path) => path,
        Err(error) => return all(&refusal(&error)),
    };
    let parent = match open_parent(root, &first) {
        Ok(parent) => parent,
        Err(errno) if is_missing(errno) => {
            remove_emptied(root, folder);
            return all(&DeleteAnswer::Absent);
        }
        Err(errno) => return all(&refusal(&failure("opening a folder", errno))),
    };
    let answers = in_parallel(positions, positions.len(), |positions| {
        positions.iter().map(|&position| (position, remove_key(&parent, &keys[position]))).collect()
    });
    // An earlier batch may have removed a file and crashed before the sync, so the folder is synced
    // for absent names as well.
    if let Err(errno) = rustix::fs::fsync(&parent) {
        return all(&DeleteAnswer::Unknown(format!("deletes in {folder:?} may not be durable: {errno}")));
    }
    remove_emptied(root, folder);
    answers
}

fn remove_key(folder: &OwnedFd, key: &str) -> DeleteAnswer {
    match KeyPath::parse(key) {
        Ok(path) => remove(folder, path.name),
        Err(error) => refusal(&error),
    }
}

pub(super) fn remove(folder: &OwnedFd, name: &str) -> DeleteAnswer {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => DeleteAnswer::Deleted,
        // A folder of that name holds other keys; the key itself does not exist.
        Err(Errno::NOENT | Errno::ISDIR) => DeleteAnswer::Absent,
        Err(errno) => refusal(&failure("deleting", errno)),
    }
}

/// Removes the drafts of all keys; the answers are in key order.
fn remove_drafts(root: &OwnedFd, keys: &[String]) -> Vec<DeleteAnswer> {
    let path = KeyPath { folders: DRAFTS.split_terminator('/').collect(), name: "" };
    let folder = match open_parent(root, &path) {
        Ok(folder) => folder,
        Err(errno) if is_missing(errno) => return vec![DeleteAnswer::Absent; keys.len()],
        Err(errno) => return vec![refusal(&failure("opening the folder of temporary files", errno)); keys.len()],
    };
    let answers: Vec<_> = keys.iter().map(|key| remove(&folder, &draft_name(key))).collect();
    match rustix::fs::fsync(&folder) {
        Ok(()) => answers,
        Err(errno) => {
            vec![DeleteAnswer::Unknown(format!("deletes of temporary files may not be durable: {errno}")); keys.len()]
        }
    }
}

/// A key is deleted when both its file and its draft are.
fn merge_draft(answer: &mut DeleteAnswer, draft: DeleteAnswer) {
    let is_deleted = matches!(answer, DeleteAnswer::Deleted | DeleteAnswer::Absent);
    if is_deleted && draft != DeleteAnswer::Absent {
        *answer = draft;
    }
}

/// Removes the folder and its ancestors while they are empty. A failure does not fail the batch; the
/// next delete below retries.
pub(super) fn remove_emptied(root: &OwnedFd, folder: &str) {
    let mut folder = folder;
    while !folder.is_empty() && !format!("{folder}/").starts_with(RESERVED_PREFIX) {
        let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
        let path = KeyPath { folders: above.split_terminator('/').collect(), name };
        let removed =
            open_parent(root, &path).and_then(|parent| rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => folder = above,
            Err(_) => return,
        }
    }
}

/// An absence proves nothing if the disk was unmounted during the batch.
pub(super) fn prove_absence(state: &FsState, answers: &mut [DeleteAnswer]) {
    if let Err(error) = state.root.enter() {
        for answer in answers.iter_mut().filter(|answer| **answer == DeleteAnswer::Absent) {
            *answer = refusal(&error);
        }
    }
}

/// Removes one file from a folder of s3o's own; a missing file is no error.
pub(super) fn remove_own(root: &OwnedFd, folder: &str, name: &str) -> Result<(), Errno> {
    let own = open_folder(root, RESERVED_PREFIX.trim_end_matches('/'))?;
    match rustix::fs::unlinkat(open_folder(own, folder)?, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}
