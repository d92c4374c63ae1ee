mod chaos;
mod network;
mod rules;
