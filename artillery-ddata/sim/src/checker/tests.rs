//! Histories known to be good and bad, and a comparison with an exhaustive check.
