//! Who founds a cluster.
