//! Kapelle: agents.
