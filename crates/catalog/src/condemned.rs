//! Notifications of condemned content. Every unit that releases content uses [`release`](crate::release), which
//! records the statements whose answers name the condemned contents.

use std::sync::{Arc, OnceLock};

use s3o_model::ids::ContentId;

use crate::Catalog;
use crate::unit::{Answer, Unit};

/// Is notified of condemned content.
pub trait CondemnedObserver: Send + Sync {
    /// Called after the COMMIT of a transaction that condemned these, by the task that committed: it must not wait. Not
    /// called for a COMMIT whose answer was lost.
    fn condemned(&self, contents: &[ContentId]);
}

/// The observer, if one is set. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct ObserverSlot(Arc<OnceLock<Arc<dyn CondemnedObserver>>>);

/// The observer, and the indexes of the answers that name condemned contents.
pub(crate) struct CondemnedNotice<'a> {
    observer: &'a dyn CondemnedObserver,
    condemning: Vec<usize>,
}

impl ObserverSlot {
    /// `None` if there is no observer or the unit condemns nothing.
    pub(crate) fn notice_of(&self, unit: &Unit) -> Option<CondemnedNotice<'_>> {
        let observer = self.0.get()?.as_ref();
        (!unit.condemning.is_empty()).then(|| CondemnedNotice { observer, condemning: unit.condemning.clone() })
    }
}

impl CondemnedNotice<'_> {
    /// Notifies the observer of the contents that the committed unit condemned, if any.
    pub(crate) fn send(&self, answers: &[Answer]) {
        let rows = self.condemning.iter().flat_map(|index| &answers[*index].rows);
        let contents: Vec<ContentId> = rows.filter_map(|row| row.parse("id").ok()).collect();
        if !contents.is_empty() {
            self.observer.condemned(&contents);
        }
    }
}

impl Catalog {
    /// Notifies `observer` of every content that this process condemns from now on. Only the first call has an effect.
    pub fn observe_condemned(&self, observer: Arc<dyn CondemnedObserver>) {
        self.condemned.0.get_or_init(|| observer);
    }
}
