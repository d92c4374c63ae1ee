//! The store that forgets at exit.

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {}
