//! Layers: backends that wrap a backend and add one habit each.
//!
//! A layer forwards every method by hand. Nothing about a contract changes on the way through:
//! what was proven stays proven, and no layer ever repeats a write.

pub mod flaky;
pub mod idle_timeout;
pub mod metered;
pub mod retry;

pub use flaky::{Fault, Flaky, Weather};
pub use idle_timeout::IdleTimeout;
pub use metered::{Meter, Metered};
pub use retry::{Retry, RetryOptions};

#[cfg(test)]
mod stamped;
