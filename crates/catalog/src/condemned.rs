//! Telling of condemned content: every path that lets go of content goes through
//! [`release`](crate::release), whose units know which of their answers name what they condemned.

use std::sync::{Arc, OnceLock};

use s3o_model::ids::ContentId;

use crate::Catalog;
use crate::unit::{Answer, Unit};

/// Hears of content that nothing refers to any more.
pub trait CondemnedObserver: Send + Sync {
    /// These were condemned by a transaction that is committed. Told beside the request that did
    /// it, so it must be quick. A COMMIT whose answer was lost is not told of.
    fn condemned(&self, contents: &[ContentId]);
}

/// Who listens, if anybody does. Clones are the same listener.
#[derive(Clone, Default)]
pub(crate) struct Listener(Arc<OnceLock<Arc<dyn CondemnedObserver>>>);

/// What is to be told of one unit once it is committed.
pub(crate) struct Ears<'a> {
    observer: &'a dyn CondemnedObserver,
    condemning: Vec<usize>,
}

impl Listener {
    /// What is to be told of a unit; `None` where nobody listens or nothing is condemned.
    pub(crate) fn of(&self, unit: &Unit) -> Option<Ears<'_>> {
        let observer = self.0.get()?.as_ref();
        (!unit.condemning.is_empty()).then(|| Ears { observer, condemning: unit.condemning.clone() })
    }
}

impl Ears<'_> {
    /// Tells what a committed unit condemned.
    pub(crate) fn hear(&self, answers: &[Answer]) {
        let rows = self.condemning.iter().flat_map(|place| &answers[*place].rows);
        let contents: Vec<ContentId> = rows.filter_map(|row| row.parse(0).ok()).collect();
        if !contents.is_empty() {
            self.observer.condemned(&contents);
        }
    }
}

impl Catalog {
    /// Lets somebody hear of every content that this process condemns from now on. The first one
    /// who asks is told.
    pub fn tell_of_condemned(&self, observer: Arc<dyn CondemnedObserver>) {
        self.condemned.0.get_or_init(|| observer);
    }
}
