//! A kernel without an allocator: what `size.rs` is compared with by `cargo xtask kernel size`.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare;

/// Does what can be done without memory.
#[cfg(target_os = "none")]
fn kernel(passed: u64) -> u64 {
    passed.count_ones().into()
}

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a program for a bare machine");
}
