//! Benches only; see `benches/` and the README.
