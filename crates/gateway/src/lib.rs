//! The one door for money and keys.
//!
//! For now it knows the table of prices. Provider wire formats, keys, reservation per call, rate limits and the
//! egress allow-list move in here with the gateway's own part.

pub mod prices;
