//! Nodes with directories: how soon they are back after all of them were killed, and the cost of syncs for a write.

pub mod bare;
pub mod cold;
pub mod commit;
pub mod http;
pub mod records;
pub mod site;
pub mod syncs;
pub mod writers;
