//! The part of the `zonal` command that measures on real threads. `zonal` starts it; it can also
//! be run itself, with the same arguments.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use zonal_bench::bench;
use zonal_bench_all::{Cli, Command, info, registry};
use zonal_cli::command::finish;
use zonal_cli::interrupt;

fn main() -> ExitCode {
    let cli = Cli::parse();
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = match &cli.command {
        Command::Bench(args) => bench::run(args, &registry::all(), &mut out),
        Command::Info(args) => info::run(args, &mut out),
    };
    finish(result, &mut out)
}
