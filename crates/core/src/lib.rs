//! Kapelle: core.
