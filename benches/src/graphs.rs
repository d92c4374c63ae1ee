//! Pictures and tables of stored results, and whether the promises hold.

mod canvas;
pub mod draw;
pub mod paper;
pub mod table;
pub mod verdict;
