//! The store from outside, on real files and with real processes.

// Helpers of tests are tests too, but the lint does not see that.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod audit;
mod contract;
mod crash;
mod fixture;
mod lock;
mod opening;
mod projections;
mod writer;
