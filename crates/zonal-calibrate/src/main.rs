//! The part of the `zonal` command that measures this machine for the simulator. `zonal` starts
//! it; it can also be run itself, with the same arguments.

use std::process::ExitCode;

use zonal_calibrate::Command;
use zonal_cli::command::start;

fn main() -> ExitCode {
    start(|Command::Calibrate(args): &Command, out| zonal_calibrate::run(args, out))
}
