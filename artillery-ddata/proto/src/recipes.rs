//! State machines of the recipes that applications build from keys that expire: locks, elections and registrations.
//!
//! They decide, and perform nothing. `Kv` drives them with its calls, the simulator with its clients.

pub mod lease;
pub mod name;
pub mod queue;
pub mod registration;
pub mod renewal;
pub mod token;

pub use self::{
    lease::KeyLease,
    queue::{Contender, QueueStep},
    registration::{RegisterStep, Registrant},
    token::FencingToken,
};
