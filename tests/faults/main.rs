//! Faults on purpose: every backend call of every operation fails in turn, every request is given
//! up at every step, and each time the end state must be the same as after a good day: what was
//! acknowledged is there, and nothing else is.

mod counts;
mod dead_letters;
mod dropped;
mod each_call;
mod house;
mod overtaken;
mod scenarios;
mod verify;
mod yielding;
