//! `zonal record` and `zonal replay`: what a run, or a machine with Linux, asked of the page
//! allocator, as a trace and from a trace.
//!
//! ```
//! use clap::Parser;
//! use zonal_replay::{Cli, Command};
//!
//! let cli = Cli::try_parse_from(["zonal", "replay", "trace.txt"])?;
//! assert!(matches!(cli.command, Command::Replay(_)));
//! # Ok::<(), clap::Error>(())
//! ```

use clap::Subcommand;

pub mod error;
pub mod record;
pub mod replay;

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload and write down what it asked of the allocator
    Record(record::RecordArgs),
    /// Ask of presets what a trace, of Linux or of `zonal record`, asked of the allocator
    Replay(replay::ReplayArgs),
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
