//! The part of the `zonal` command that mounts. `zonal` starts it; it can also be run itself, with the same
//! arguments.

use std::process::ExitCode;

use zonal_cli::command::start;
use zonal_mount::{Command, command};

fn main() -> ExitCode {
    start(|Command::Mount(args): &Command, out| command::run(args, out))
}
