//! Publishes this cluster's exports and global services into its own etcd.

pub mod records;
