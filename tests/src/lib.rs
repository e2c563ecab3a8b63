//! What the test suites beside this folder share: the harness, the environment that survives a crash, call points, the
//! invariants, and the operations that several suites run. `README.md` describes every suite.

pub mod call_points;
pub mod database;
pub mod environment;
pub mod harness;
pub mod invariants;
pub mod process;
pub mod scenarios;
