//! Kapelle as a person meets it: the real binary on real repositories, with real git, processes,
//! sandboxes and stores. Only the models are played.

// A fixture that cannot be built is a failed test; clippy only knows test functions.
#![allow(clippy::unwrap_used)]

mod agents;
mod approval;
mod boxes;
mod budget;
mod checks;
#[path = "../../../store/tests/store/cluster.rs"]
#[allow(dead_code, reason = "the store's own tests use the rest")]
mod cluster;
mod crash;
mod demo;
mod fixture;
mod input;
mod look;
mod missions;
mod people;
mod sandbox;
mod store;
