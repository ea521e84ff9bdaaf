//! The command line, of which this program has a part and knows of the rest.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};
use zonal_bench::args::BenchArgs;
use zonal_bench::child;

/// Page-frame allocators, measured side by side on real threads and simulated machines.
///
/// Without a command: page-fault1 on one CPU and on all, zonal beside the fastest peers.
#[derive(Debug, Parser)]
#[command(name = "zonal", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload on presets of zonal and on other allocators, on pinned threads
    Bench(Box<BenchArgs>),
    /// Run a workload and print its buddyinfo, pagetypeinfo, zoneinfo and vmstat
    #[command(disable_help_flag = true)]
    Info(Rest),
    /// Run a workload on a simulated machine
    #[command(disable_help_flag = true)]
    Sim(Rest),
    /// Run a workload and write down what it asked of the allocator
    #[command(disable_help_flag = true)]
    Record(Rest),
    /// Ask of presets what a trace, of Linux or of `zonal record`, asked of the allocator
    #[command(disable_help_flag = true)]
    Replay(Rest),
    /// Simulate what was published and print both, with the error of each number
    #[command(disable_help_flag = true)]
    Reproduce(Rest),
    /// Compare I/O schedulers over a file, or over a simulated disk
    #[command(disable_help_flag = true)]
    Iosched(Rest),
    /// Read and write files by threads, in a directory or on a simulated machine of 2014
    #[command(disable_help_flag = true)]
    Tiobench(Rest),
    /// Truncate files whose pages are all cached, in a directory
    #[command(disable_help_flag = true)]
    Sparsetruncate(Rest),
    /// Make, look up and remove many files, in a directory
    #[command(disable_help_flag = true)]
    Bonnie(Rest),
    /// Have clients write, flush, read and remove files, in a directory
    #[command(disable_help_flag = true)]
    Dbench(Rest),
    /// Measure this machine and write a machine file for the simulator
    #[command(disable_help_flag = true)]
    Calibrate(Rest),
    /// Print the hit ratio of every eviction policy over cache sizes, on a block trace
    #[command(disable_help_flag = true)]
    Cachetrace(Rest),
    /// Mount a directory whose file data are cached below a bound on memory
    #[command(disable_help_flag = true)]
    Mount(Rest),
    /// What a process for one peer does
    #[command(name = child::ARGUMENT, hide = true)]
    Case,
    /// Print this message or the help of a command
    Help {
        /// The command
        command: Option<String>,
    },
}

/// What another program reads.
#[derive(Debug, Args)]
pub(crate) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_another_program_reads_is_not_looked_at() {
        for line in ["sim --help", "replay -x --json", "info --nonsense 3", "calibrate -- x"] {
            let line = ["zonal"].into_iter().chain(line.split(' '));
            assert!(Cli::try_parse_from(line.clone()).is_ok(), "{line:?}");
        }
        assert!(Cli::try_parse_from(["zonal", "bench", "--nonsense"]).is_err());
        assert!(Cli::try_parse_from(["zonal", "nonsense"]).is_err());
    }
}
