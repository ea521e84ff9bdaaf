//! A kernel on zonal: it boots on the processors of an emulated PC, runs workloads on all of them, and
//! ends each by counting every frame. `cargo xtask kernel test` builds it, boots it and looks at how it
//! ended.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod machine;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod shell;
#[cfg(target_os = "none")]
mod start;
#[cfg(target_os = "none")]
mod workload;

#[cfg(target_os = "none")]
use start::{start, start_ap};

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("a kernel for a bare machine: `cargo xtask kernel run` builds and boots it");
    std::process::exit(2);
}
