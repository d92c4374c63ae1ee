mod conformance;
mod network;
