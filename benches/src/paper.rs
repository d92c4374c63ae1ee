//! The evaluation of the CRAQ paper (Terrace and Freedman, USENIX ATC 2009, section 6), on shaped links.
//!
//! Each node and each client has a network namespace ([`net`]), whose link to a common switch carries a fixed number of
//! megabits per second in each direction. Nodes are processes ([`chain`]); clients are threads of this process
//! ([`crowd`]). As in the paper, links limit the throughput of a chain, as long as there is processor time left.

pub mod chain;
pub mod crowd;
pub mod experiments;
pub mod load;
pub mod net;
pub mod results;
pub mod tally;
pub mod verdict;
