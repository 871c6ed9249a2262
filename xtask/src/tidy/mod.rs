//! `cargo xtask tidy`: the walls between crates and the taste of the code, enforced.
//!
//! Every rule is a function over text or metadata in memory, with a bad and a good example in its
//! tests. `cargo test` runs all of them over the real tree.

mod check;
mod finding;
mod pins;
mod purity;
mod reach;
mod shape;
mod source;
mod tree;
mod walls;
mod words;

pub use check::{HELP, check, command};
