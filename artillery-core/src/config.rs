//! Settings as plain data: start from a preset, change fields, and check with `validate`.

mod swim;
mod transport;

pub use swim::SwimSettings;
pub use transport::{Congestion, TransportConfig};
