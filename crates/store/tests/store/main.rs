//! The store from outside, on real files and with real processes.

// Helpers of tests are tests too, but the lint does not see that.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod audit;
mod blobs;
mod cluster;
mod contract;
mod crash;
mod crowd;
mod faults;
mod fixture;
mod follow;
mod interrupted;
mod lead;
mod lock;
mod lost;
mod middleman;
mod migrations;
mod opening;
mod outside;
mod projections;
mod sayings;
mod search;
mod snapshots;
mod transfer;
mod writer;
