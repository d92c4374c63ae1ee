mod after;
mod chaos;
mod existing;
mod network;
mod rules;
mod search;
