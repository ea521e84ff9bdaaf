//! The part of the `zonal` command that simulates. `zonal` starts it; it can also be run itself,
//! with the same arguments.

use std::process::ExitCode;

use zonal_cli::command::start;
use zonal_simulate::{Command, command};

fn main() -> ExitCode {
    start(|Command::Sim(args): &Command, out| command::run(args, out))
}
