//! Exhaustive exploration of small chains.

pub mod bounds;
pub mod explore;
pub mod history;
pub mod model;
pub mod world;
