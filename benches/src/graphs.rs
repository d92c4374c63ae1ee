//! Pictures and tables of stored results, and whether the promises are kept.

mod canvas;
pub mod draw;
pub mod paper;
pub mod table;
pub mod verdict;
