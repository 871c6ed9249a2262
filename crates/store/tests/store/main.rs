//! The store from outside, on real files and with real processes.

mod audit;
mod contract;
mod crash;
mod fixture;
mod lock;
mod opening;
mod projections;
mod writer;
