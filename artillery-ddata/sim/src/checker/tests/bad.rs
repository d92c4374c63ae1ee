//! Histories that no register explains.
