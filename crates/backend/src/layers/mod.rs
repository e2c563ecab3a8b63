//! Layers: backends that wrap a backend and add one behaviour each.
//!
//! A layer forwards every method explicitly and does not change its contract. No layer repeats a write.

pub mod breaker;
pub mod counted;
#[cfg(any(test, feature = "testing"))]
pub mod flaky;
pub mod idle_timeout;
pub mod metered;
pub mod retry;

pub use breaker::Breaker;
pub use counted::CountedCalls;
#[cfg(any(test, feature = "testing"))]
pub use flaky::{Fault, FaultPlan, Flaky};
pub use idle_timeout::IdleTimeout;
pub use metered::{Meter, Metered};
pub use retry::{Retry, RetryOptions};

#[cfg(test)]
mod conformance_tests;
