//! Kapelle: store.
