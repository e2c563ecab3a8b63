//! What every S3 request gets, whatever it asks: an identifier, metrics and a log line.
//!
//! All three are written here, from the outcome, so that no operation can forget them.

mod metrics;
mod notes;
mod observer;

pub use metrics::RequestMetrics;
pub use notes::RequestNotes;
pub use observer::{Observed, Observer};
