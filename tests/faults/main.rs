//! Faults on purpose: every backend call of every operation fails in turn, and each time the end
//! state must be the same as after a good day: what was acknowledged is there, and nothing else is.

mod bad_copies;
mod cached;
mod counted;
mod counts;
mod dead_letters;
mod departures;
mod each_call;
mod full;
mod late;
mod late_writes;
mod order;
mod overtaken;
mod poison;
mod strangers;
mod verify;
