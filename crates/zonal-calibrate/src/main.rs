//! The part of the `zonal` command that measures this machine for the simulator. `zonal` starts
//! it; it can also be run itself, with the same arguments.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use zonal_calibrate::{Cli, Command};
use zonal_cli::command::finish;
use zonal_cli::interrupt;

fn main() -> ExitCode {
    let Command::Calibrate(args) = Cli::parse().command;
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = zonal_calibrate::run(&args, &mut out);
    finish(result, &mut out)
}
