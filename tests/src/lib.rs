//! Tests of several rooms together, and of the source itself. The tests are in the folders beside
//! this one; black-box tests of the built program are in `blackbox/`.
//!
//! What they share is here: a world that outlives a crash, a process that does not, and what must
//! hold when everything has come to rest.

pub mod database;
pub mod house;
pub mod points;
pub mod process;
pub mod rest;
pub mod scenarios;
pub mod world;
