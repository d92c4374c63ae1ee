#![allow(missing_docs, unreachable_pub)]

mod abuse;
mod discovering;
mod durable;
mod embedding;
mod failover;
mod hot_key;
mod large;
mod local_read;
mod meeting;
mod node;
mod reaching;
mod support;
mod views;
