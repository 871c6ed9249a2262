//! Kapelle: gateway.
