//! Which chain, in which order, under which epoch: decisions, not suggestions.
