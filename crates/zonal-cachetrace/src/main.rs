//! The part of the `zonal` command that asks policies what a trace would hit. `zonal` starts it; it can
//! also be run itself, with the same arguments.

use std::process::ExitCode;

use zonal_cachetrace::{Command, command};
use zonal_cli::command::start;

fn main() -> ExitCode {
    start(|Command::Cachetrace(args): &Command, out| command::run(args, out))
}
