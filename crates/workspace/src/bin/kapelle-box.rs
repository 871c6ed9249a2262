//! The box program by itself. The product calls its own binary for this; tests call this one.

fn main() {
    let args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    std::process::exit(kapelle_workspace::sandbox::enter(&args));
}
