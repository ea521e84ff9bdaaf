//! `zonal sim`: workloads on simulated machines, and the runs of them that other commands need.
//!
//! ```
//! use clap::Parser;
//! use zonal_simulate::{Cli, Command};
//!
//! let cli = Cli::try_parse_from(["zonal", "sim", "skylake_2s_112cpu", "page-fault1"])?;
//! assert!(matches!(cli.command, Command::Sim(_)));
//! # Ok::<(), clap::Error>(())
//! ```

use clap::Subcommand;

pub mod chart;
pub mod command;
pub mod error;
pub mod list;
mod records;
pub mod runs;
mod tables;
pub mod tasks;

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload on a simulated machine
    Sim(command::SimArgs),
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
