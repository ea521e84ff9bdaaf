//! The part of the `zonal` command that records and replays traces. `zonal` starts it; it can
//! also be run itself, with the same arguments.

use std::process::ExitCode;

use zonal_cli::command::start;
use zonal_replay::{Command, record, replay};

fn main() -> ExitCode {
    start(|command: &Command, out| match command {
        Command::Record(args) => record::run(args, out),
        Command::Replay(args) => replay::run(args, out),
    })
}
