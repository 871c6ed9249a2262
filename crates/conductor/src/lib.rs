//! Kapelle: conductor.
