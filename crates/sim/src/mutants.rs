//! Planted bugs.
#[derive(Debug, Clone, Copy)]
pub enum Mutant {
    X,
}
#[derive(Debug, Clone)]
pub struct Planted;
