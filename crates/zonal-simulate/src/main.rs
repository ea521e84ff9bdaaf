//! The part of the `zonal` command that simulates. `zonal` starts it; it can also be run itself,
//! with the same arguments.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use zonal_cli::command::finish;
use zonal_cli::interrupt;
use zonal_simulate::{Cli, Command, command};

fn main() -> ExitCode {
    let Command::Sim(args) = Cli::parse().command;
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = command::run(&args, &mut out);
    finish(result, &mut out)
}
