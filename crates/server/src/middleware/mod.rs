//! What every S3 request gets, whatever its operation: a slot, a request ID, metrics, a log line, an audit line if it
//! may have changed something, and a time limit for its body.
//!
//! The middleware wraps all operations, so that none of them can omit it.

mod admission;
mod audited;
mod incoming;
mod metrics;
mod observer;
mod request_context;
mod transfer;

pub(crate) use admission::{Admission, GuardedBody, MeteredBody, SlotTicket};
pub(crate) use incoming::{ConnectionFate, STALLED, UnreadBody, watch};
pub use metrics::RequestMetrics;
pub(crate) use observer::Observed;
pub use observer::Observer;
pub(crate) use request_context::{RequestContext, RequestSubject};
pub(crate) use transfer::Transfer;
