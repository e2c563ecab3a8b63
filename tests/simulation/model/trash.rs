//! Objects that operations on prefixes move to trash and back.

use std::collections::BTreeSet;

use super::{KeyContent, KeyModel, KeyState, ModelRequest, OpenRequest, StoredRow};

impl KeyModel {
    /// From now on an operation may move the object to trash, any number of times.
    pub fn start_rm(&mut self, request: ModelRequest) {
        self.start(request, OpenRequest::Rm);
    }

    /// From now on an operation may restore an object from trash; never over another one.
    pub fn start_restore(&mut self, request: ModelRequest) {
        self.start(request, OpenRequest::Restore);
    }

    /// The contents that an open operation may restore.
    pub fn restorable(&self) -> BTreeSet<KeyContent> {
        if !self.open.values().any(|(_, open)| matches!(open, OpenRequest::Restore)) {
            return BTreeSet::new();
        }
        self.trashed.iter().map(|row| Some(row.body)).collect()
    }

    /// Adds what an open operation may have moved to trash; true if that is more than before.
    pub(super) fn note_trashed(&mut self) -> bool {
        if !self.open.values().any(|(_, open)| matches!(open, OpenRequest::Rm)) {
            return false;
        }
        let before = self.trashed.len();
        let held: Vec<StoredRow> = self.states.iter().filter_map(|state| state.held).collect();
        self.trashed.extend(held);
        self.trashed.len() > before
    }

    /// The states after an object was restored to a free key.
    pub(super) fn restored(&self, state: &KeyState) -> Vec<KeyState> {
        self.trashed.iter().map(|row| self.written(state, Some(*row))).collect()
    }
}
