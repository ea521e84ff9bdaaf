//! The part of the `zonal` command that reproduces published numbers. `zonal` starts it; it can
//! also be run itself, with the same arguments.

use std::process::ExitCode;

use zonal_cli::command::start;
use zonal_reproduce::Command;

fn main() -> ExitCode {
    start(|Command::Reproduce(args): &Command, out| zonal_reproduce::run(args, out))
}
