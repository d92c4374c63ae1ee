mod after;
mod chaos;
mod network;
mod rules;
