//! The part of the `zonal` command that runs benchmarks of I/O. `zonal` starts it; it can also be run
//! itself, with the same arguments.

use std::process::ExitCode;

use zonal_cli::command::start;
use zonal_iobench::{Command, command};

fn main() -> ExitCode {
    start(|command: &Command, out| command::run(command, out))
}
