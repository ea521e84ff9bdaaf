//! The part of the `zonal` command that compares I/O schedulers. `zonal` starts it; it can also be
//! run itself, with the same arguments.

use std::process::ExitCode;

use zonal_cli::command::start;
use zonal_iosched::{Command, command};

fn main() -> ExitCode {
    start(|Command::Iosched(args): &Command, out| command::run(args, out))
}
