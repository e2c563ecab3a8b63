//! What every S3 request gets, whatever it asks: a place, an identifier, metrics, a log line, an
//! audit line where it may have changed something, and a body that is waited for no longer than is fair.
//!
//! All of it is done here, around the operations, so that none of them can forget it.

mod admission;
mod audited;
mod incoming;
mod metrics;
mod notes;
mod observer;
mod transfer;

pub use admission::{Admission, Admitted, Held, Metered, SlotTicket};
pub use audited::mutates;
pub use incoming::{Connection, Rest, STALLED, Watched, watch};
pub use metrics::RequestMetrics;
pub use notes::{RequestNotes, Subject};
pub use observer::{Observed, Observer};
pub use transfer::Transfer;
