//! Benchmarks of I/O on real files, and on machines of the tables of 2014 and 2017 that are simulated:
//! page cache in its real size, reclaim of two kernels, CFQ, a disk.
//!
//! ```
//! use zonal_iobench::kernel::KERNELS;
//! use zonal_iobench::machine::MACHINES;
//!
//! assert_eq!((KERNELS.len(), MACHINES.len()), (10, 5));
//! ```
#![forbid(unsafe_code)]

pub mod command;
mod descriptors;
pub mod error;
mod file_commands;
pub mod files;
pub mod freeing;
pub mod iostat;
pub mod kernel;
pub mod machine;
pub mod many_files;
pub mod memory;
pub mod program;
pub mod real;
pub mod simulated;

pub use command::Command;

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
