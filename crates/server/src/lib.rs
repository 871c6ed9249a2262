//! Kapelle: server.
