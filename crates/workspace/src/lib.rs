//! Kapelle: workspace.
