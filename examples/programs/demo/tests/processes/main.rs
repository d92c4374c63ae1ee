//! Runs the demo as people do.

mod end;
mod running;
mod usage;
