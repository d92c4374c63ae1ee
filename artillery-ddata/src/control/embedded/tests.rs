mod book;
mod conformance;
mod group;
mod machine;
mod messages;
mod network;
mod seeds;
mod voters;
