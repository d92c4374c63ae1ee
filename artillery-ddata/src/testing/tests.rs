mod applications;
mod disks;
mod expiring;
mod mutants;
mod network;
mod views;
