//! `zonal bench` with every preset and peer, and `zonal info`.
//!
//! ```
//! use clap::Parser;
//! use zonal_bench_all::{Cli, Command};
//!
//! let cli = Cli::try_parse_from(["zonal", "bench", "hot-pair", "--threads", "1,2"])?;
//! assert!(matches!(cli.command, Command::Bench(_)));
//! # Ok::<(), clap::Error>(())
//! ```

use clap::Subcommand;
use zonal_bench::args::BenchArgs;
use zonal_bench::child;

pub mod aging;
pub mod info;
pub mod registry;
pub mod tails;

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a workload on presets of zonal and on other allocators, on pinned threads
    Bench(BenchArgs),
    /// Run a workload and print its buddyinfo, pagetypeinfo, zoneinfo and vmstat
    Info(info::InfoArgs),
    /// What a process for one peer does
    #[command(name = child::ARGUMENT, hide = true)]
    Case,
}
