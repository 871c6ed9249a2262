//! Kapelle: sim.
