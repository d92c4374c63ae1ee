//! What is made of stored results: pictures, tables, and whether the promises hold.

pub mod draw;
pub mod table;
pub mod verdict;
