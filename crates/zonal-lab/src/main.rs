//! The `zonal` command. See the `zonal_lab` library for how it measures.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use zonal_lab::cli::{Cli, Command};
use zonal_lab::error::LabError;
use zonal_lab::{bench, calibrate, info, record, replay, reproduce, sim_command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::stdout().lock();
    let result = match &cli.command {
        None => bench::newcomer(&mut out),
        Some(Command::Bench(args)) => bench::run(args, &mut out),
        Some(Command::Info(args)) => info::run(args, &mut out),
        Some(Command::Sim(args)) => sim_command::run(args, &mut out),
        Some(Command::Record(args)) => record::run(args, &mut out),
        Some(Command::Replay(args)) => replay::run(args, &mut out),
        Some(Command::Reproduce(args)) => reproduce::run(args, &mut out),
        Some(Command::Calibrate(args)) => calibrate::run(args, &mut out).map_err(LabError::from),
    };
    match result.and_then(|()| out.flush().map_err(LabError::from)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the results has seen enough: `zonal bench all | head`.
        Err(LabError::Print(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("zonal: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
