//! What every S3 request gets, whatever it asks: a place, an identifier, metrics, a log line, and
//! a body that is waited for no longer than is fair.
//!
//! All of it is done here, around the operations, so that none of them can forget it.

mod admission;
mod incoming;
mod metrics;
mod notes;
mod observer;

pub use admission::{Admission, Admitted, Held};
pub use incoming::{Connection, Rest, STALLED, Watched, watch};
pub use metrics::RequestMetrics;
pub use notes::RequestNotes;
pub use observer::{Observed, Observer};
