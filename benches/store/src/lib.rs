//! Benches of the etcd of the mesh only; see the README of the folder above.
