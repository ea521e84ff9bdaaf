//! The part of the `zonal` command that measures on real threads. `zonal` starts it; it can also
//! be run itself, with the same arguments.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use zonal_bench::{bench, child};
use zonal_bench_all::aging::{self, AgingLine};
use zonal_bench_all::{Command, info, registry};
use zonal_cli::command::{finish, parse_from, start};
use zonal_cli::interrupt;

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().skip(1).collect();
    if aging::is_asked_for(&line) {
        return age(&line[1..]);
    }
    start(|command: &Command, out| match command {
        Command::Bench(args) => bench::run(args, &child::peers(registry::all()), out),
        Command::Info(args) => info::run(args, out),
        Command::Case => child::serve(&registry::all(), out),
    })
}

/// `bench aging`, which has other arguments than all other workloads.
fn age(line: &[OsString]) -> ExitCode {
    let args = match parse_from::<AgingLine>(line) {
        Ok(AgingLine { args }) => args,
        Err(code) => return code,
    };
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = aging::run(&args, &registry::all(), &mut out);
    finish(result, &mut out)
}
