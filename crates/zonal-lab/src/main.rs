//! The `zonal` command: the first run, benches of what is compiled in, and the way to the programs
//! that have the other commands.
//!
//! ```text
//! zonal                                     page-fault1, zonal beside fast peers, a few seconds
//! zonal bench page-fault1                   every preset and peer, one thread and all CPUs
//! zonal bench aging                         how whole memory stays, preset beside preset
//! zonal bench tails                         single calls, at the median and far out
//! zonal iosched --disk desktop_2014         I/O schedulers over a simulated disk, or over a file
//! zonal tiobench --kernel 3.0,fairzone      a benchmark of 2014 on its machine, or in a directory
//! zonal calibrate --out box.toml            this machine as a machine file for the simulator
//! zonal sim skylake_2s_112cpu page-fault1   a workload on a simulated machine
//! zonal record page-fault1 -o trace.txt     the events of a run, as Linux's tracers write them
//! zonal replay trace.txt --preset zonal     the allocations of a trace, on threads or simulated
//! zonal cachetrace trace.csv                what the policies of the page cache make of a block trace
//! zonal mount DIR MOUNTPOINT --memory 256M  a directory by FUSE, its file data below a bound on memory
//! zonal reproduce --report out.html         what was published beside what the simulator makes of it
//! ```

mod cli;
mod first;
mod part;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::CommandFactory;
use zonal_bench::args::BenchArgs;
use zonal_bench::{bench, child, plan};
use zonal_cli::command::{finish, parse, parse_from};
use zonal_cli::error::LabError;
use zonal_cli::interrupt;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut out = io::stdout().lock();
    let elsewhere = |command: &str, line: &[OsString]| {
        finish(Err::<(), _>(part::take_over(command, line)), &mut io::sink())
    };
    // They have arguments of their own, which another program reads.
    if line.len() > 1 && line[0] == "bench" && (line[1] == "aging" || line[1] == "tails") {
        return elsewhere("bench", &line);
    }
    let cli = match parse::<Cli>() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.command {
        None => {
            interrupt::watch();
            finish(first::run(&mut out), &mut out)
        }
        Some(Command::Bench(args)) => match own_bench(&args, &mut out) {
            Some(code) => code,
            None => elsewhere("bench", &line),
        },
        Some(Command::Help { command: None }) => {
            finish(Cli::command().print_long_help().map_err(LabError::Print), &mut out)
        }
        Some(Command::Help { command: Some(command) }) if command == "bench" => {
            parse_from::<Cli>(["zonal", "bench", "--help"]).err().unwrap_or(ExitCode::SUCCESS)
        }
        Some(Command::Help { command: Some(command) }) => {
            elsewhere(&command, &[(&command).into(), "--help".into()])
        }
        Some(Command::Case) => finish(child::serve(&first::entries(), &mut out), &mut out),
        Some(Command::Info(_)) => elsewhere("info", &line),
        Some(Command::Sim(_)) => elsewhere("sim", &line),
        Some(Command::Record(_)) => elsewhere("record", &line),
        Some(Command::Replay(_)) => elsewhere("replay", &line),
        Some(Command::Reproduce(_)) => elsewhere("reproduce", &line),
        Some(Command::Iosched(_)) => elsewhere("iosched", &line),
        Some(Command::Tiobench(_)) => elsewhere("tiobench", &line),
        Some(Command::Sparsetruncate(_)) => elsewhere("sparsetruncate", &line),
        Some(Command::Bonnie(_)) => elsewhere("bonnie", &line),
        Some(Command::Dbench(_)) => elsewhere("dbench", &line),
        Some(Command::Calibrate(_)) => elsewhere("calibrate", &line),
        Some(Command::Cachetrace(_)) => elsewhere("cachetrace", &line),
        Some(Command::Mount(_)) => elsewhere("mount", &line),
    }
}

/// Runs what this program has compiled in; `None` if another has to. What is wrong with the
/// arguments is said without it.
fn own_bench(args: &BenchArgs, out: &mut dyn io::Write) -> Option<ExitCode> {
    if let Err(error) = plan::check(args) {
        return Some(finish(Err::<(), _>(error), out));
    }
    let entries = child::peers(first::entries());
    plan::is_within(args, &entries).then(|| {
        interrupt::watch();
        finish(bench::run(args, &entries, out), out)
    })
}
