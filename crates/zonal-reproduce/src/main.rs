//! The part of the `zonal` command that reproduces published numbers. `zonal` starts it; it can
//! also be run itself, with the same arguments.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use zonal_cli::command::finish;
use zonal_cli::interrupt;
use zonal_reproduce::{Cli, Command};

fn main() -> ExitCode {
    let Command::Reproduce(args) = Cli::parse().command;
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = zonal_reproduce::run(&args, &mut out);
    finish(result, &mut out)
}
