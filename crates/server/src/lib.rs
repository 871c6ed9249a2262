//! The HTTP face of Kapelle: what the dashboard and other programs see and ask.
//!
//! Everything is answered from the conductor's state; nothing is decided here.

mod assets;
pub mod client;
mod feed;
mod guard;
mod routes;
pub mod view;
pub mod wire;

pub use client::Client;
pub use routes::{Access, Past, serve};
