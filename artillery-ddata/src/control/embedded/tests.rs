mod book;
mod conformance;
mod group;
mod messages;
mod network;
mod seeds;
mod voters;
