//! Long histories with many clients.
