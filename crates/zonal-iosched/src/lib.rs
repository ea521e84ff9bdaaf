//! `zonal iosched`: I/O schedulers side by side, over a file by threads or over a simulated disk.
//! Workloads, schedulers and figures are one source for both. With a page cache above the scheduler:
//! [`scheduled_store`].
//!
//! ```
//! use clap::Parser;
//! use zonal_iosched::{Cli, Command};
//!
//! let line = "zonal iosched --disk desktop_2014 --scheduler cfq,deadline --processes 1,4";
//! let Command::Iosched(args) = Cli::try_parse_from(line.split(' '))?.command;
//! assert_eq!(args.processes, [1, 4]);
//! # Ok::<(), clap::Error>(())
//! ```
#![forbid(unsafe_code)]

use clap::Subcommand;

pub mod cached;
pub mod command;
pub mod error;
pub mod figures;
pub mod process;
pub mod published;
mod queue;
mod records;
pub mod scheduled_store;
pub mod scheduler;
pub mod simulated;
mod tables;
pub mod target_file;
pub mod threads;
pub mod workload;

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compare I/O schedulers over a file, or over a simulated disk
    Iosched(command::IoschedArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
