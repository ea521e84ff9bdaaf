//! The part of the `zonal` command that measures on real threads. `zonal` starts it; it can also
//! be run itself, with the same arguments.

use std::process::ExitCode;

use zonal_bench::{bench, child};
use zonal_bench_all::{Command, info, registry};
use zonal_cli::command::start;

fn main() -> ExitCode {
    start(|command: &Command, out| match command {
        Command::Bench(args) => bench::run(args, &child::peers(registry::all()), out),
        Command::Info(args) => info::run(args, out),
        Command::Case => child::serve(&registry::all(), out),
    })
}
