//! Tests of the replica as a whole: a chain whose links the test controls.

mod acks;
mod answers;
mod chain;
mod checkpoint;
mod clearing;
mod cuts;
mod durable;
mod expelled;
mod extremes;
mod filling;
mod guards;
mod hashed;
mod joining;
mod large;
mod opening;
mod promotion;
mod reading;
mod rejoins;
mod reorder;
mod requests;
mod restore;
mod resync;
mod rig;
mod scripts;
mod trailing;
mod watching;
