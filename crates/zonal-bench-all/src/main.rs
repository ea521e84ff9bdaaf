//! The part of the `zonal` command that measures on real threads. `zonal` starts it; it can also
//! be run itself, with the same arguments.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use zonal_bench::{bench, child};
use zonal_bench_all::aging::{self, AgingLine};
use zonal_bench_all::tails::{self, TailsLine};
use zonal_bench_all::{Command, info, registry};
use zonal_cli::command::{finish, parse_from, start};
use zonal_cli::error::LabError;
use zonal_cli::interrupt;

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().skip(1).collect();
    let own = line.strip_prefix(&["bench".into()]).unwrap_or_default();
    // These have other arguments than all other workloads.
    match own.first().and_then(|workload| workload.to_str()) {
        Some(aging::ARGUMENT) => {
            apart(own, |line: &AgingLine, out| aging::run(&line.args, &registry::all(), out))
        }
        Some(tails::ARGUMENT) => {
            apart(own, |line: &TailsLine, out| tails::run(&line.args, &registry::all(), out))
        }
        _ => start(|command: &Command, out| match command {
            Command::Bench(args) => bench::run(args, &child::peers(registry::all()), out),
            Command::Info(args) => info::run(args, out),
            Command::Case => child::serve(&registry::all(), out),
        }),
    }
}

/// Runs a workload with a command line of its own.
fn apart<L: Parser>(
    line: &[OsString],
    run: impl FnOnce(&L, &mut dyn Write) -> Result<(), LabError>,
) -> ExitCode {
    let line = match parse_from::<L>(line) {
        Ok(line) => line,
        Err(code) => return code,
    };
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = run(&line, &mut out);
    finish(result, &mut out)
}
