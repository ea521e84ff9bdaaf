//! The part of the `zonal` command that mounts. `zonal` starts it; it can also be run itself, with the same
//! arguments.

use std::process::ExitCode;

use zonal_cli::command::start;
use zonal_mount::{Command, command};

/// Bytes of memory from which on each piece is a mapping of its own.
#[cfg(target_env = "gnu")]
const MAPPED: std::ffi::c_int = 4 << 20;

/// Has the allocator map large pieces, and unmap those that are freed. fuser has a buffer of 16 MiB for each thread, of which
/// requests fill a part. By default glibc takes them from its heaps, once one was freed, and fills some with zeroes where threads are
/// more than heaps: 64 threads on 2 CPUs took 160 MiB more.
fn map_large_pieces() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes any numbers, and is called before there is another thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}

fn main() -> ExitCode {
    map_large_pieces();
    start(|Command::Mount(args): &Command, out| command::run(args, out))
}
