//! Deleting in batches: both names of every key, each folder made durable once, then the answers.
//!
//! Names are removed by several threads: where a disk is told of every block that is free, or is
//! behind a network, removing a name is waiting, and one thread waits for one name at a time.

use std::collections::BTreeMap;
use std::thread;

use rustix::fd::OwnedFd;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use s3o_model::physical_key::RESERVED_PREFIX;

use super::Shared;
use super::failure::{failure, leads_nowhere};
use super::folders::{Location, open_folder, open_parent};
use super::write::draft_name;
use crate::{DRAFTS, DeleteAnswer, Error};

/// How many threads remove the names of one batch.
const THREADS_MAX: usize = 8;
/// How many names are worth a thread of their own.
const NAMES_MIN: usize = 16;

/// The answer for the key at a position of the batch.
type Answered = (usize, DeleteAnswer);

pub(super) fn delete_batch(shared: &Shared, keys: &[String]) -> Vec<DeleteAnswer> {
    let mut answers = vec![DeleteAnswer::Unknown("not reached".to_owned()); keys.len()];
    let root = match shared.root.enter() {
        Ok(root) => root,
        Err(error) => return vec![refusal(&error); keys.len()],
    };
    let drafts = remove_drafts(&root, keys);
    let (large, small): (Vec<_>, Vec<_>) =
        by_folder(keys).into_iter().partition(|(_, positions)| positions.len() > 2 * NAMES_MIN);
    let mut answered: Vec<Answered> = Vec::with_capacity(keys.len());
    for (folder, positions) in &large {
        answered.extend(remove_in_folder(&root, folder, positions, keys));
    }
    let names = small.iter().map(|(_, positions)| positions.len()).sum();
    answered.extend(side_by_side(&small, names, |folders| {
        folders.iter().flat_map(|(folder, positions)| remove_in_folder(&root, folder, positions, keys)).collect()
    }));
    for (position, answer) in answered {
        answers[position] = answer;
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

/// Works on parts of a list side by side, as far as its number of names is worth it.
fn side_by_side<T: Sync>(list: &[T], names: usize, work: impl Fn(&[T]) -> Vec<Answered> + Sync) -> Vec<Answered> {
    let threads = (names / NAMES_MIN).clamp(1, THREADS_MAX);
    let part = list.len().div_ceil(threads).max(1);
    if part >= list.len() {
        return work(list);
    }
    thread::scope(|scope| {
        let parts: Vec<_> = list.chunks(part).map(|part| scope.spawn(|| work(part))).collect();
        // Whoever does not answer leaves its keys unknown.
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

/// Removes names of one folder, makes that durable, and removes the folder if nothing is left in it.
fn remove_in_folder(root: &OwnedFd, folder: &str, positions: &[usize], keys: &[String]) -> Vec<Answered> {
    let all = |answer: &DeleteAnswer| positions.iter().map(|&position| (position, answer.clone())).collect();
    let first = match Location::parse(&keys[positions[0]]) {
        Ok(location) => location,
        Err(error) => return all(&refusal(&error)),
    };
    let parent = match open_parent(root, &first) {
        Ok(parent) => parent,
        Err(errno) if leads_nowhere(errno) => {
            remove_emptied(root, folder);
            return all(&DeleteAnswer::Absent);
        }
        Err(errno) => return all(&refusal(&failure("opening a folder", errno))),
    };
    let answers = side_by_side(positions, positions.len(), |positions| {
        positions.iter().map(|&position| (position, remove_key(&parent, &keys[position]))).collect()
    });
    // An earlier batch may have removed a name and died before it was durable, so the folder is
    // synced for names that are already absent as well.
    if let Err(errno) = rustix::fs::fsync(&parent) {
        return all(&DeleteAnswer::Unknown(format!("deletes in {folder:?} may not be durable: {errno}")));
    }
    remove_emptied(root, folder);
    answers
}

fn remove_key(folder: &OwnedFd, key: &str) -> DeleteAnswer {
    match Location::parse(key) {
        Ok(location) => remove(folder, location.name),
        Err(error) => refusal(&error),
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
