//! The dashboard is embedded at compile time, so a new build of it means a new build of this.

fn main() {
    println!("cargo::rerun-if-changed=../../web/dist");
}
