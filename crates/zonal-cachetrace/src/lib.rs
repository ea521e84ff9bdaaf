//! `zonal cachetrace`: what the eviction policies of [`zonal_cache`] make of a block trace.
//!
//! ```
//! use clap::Parser;
//! use zonal_cachetrace::{Cli, Command};
//!
//! let cli = Cli::try_parse_from(["zonal", "cachetrace", "trace.csv", "--sizes", "1M,64M"])?;
//! assert!(matches!(cli.command, Command::Cachetrace(_)));
//! # Ok::<(), clap::Error>(())
//! ```

use clap::Subcommand;

pub mod command;
pub mod error;
pub mod read;
pub mod show;
pub mod simulate;
pub mod trace;

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the hit ratio of every eviction policy over cache sizes, on a block trace
    Cachetrace(command::TraceArgs),
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
