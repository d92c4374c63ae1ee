mod applications;
mod disks;
mod mutants;
mod network;
