mod applications;
mod disks;
mod expiring;
mod locks;
mod mutants;
mod network;
mod recipes;
mod views;
