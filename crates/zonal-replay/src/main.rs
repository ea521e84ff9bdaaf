//! The part of the `zonal` command that records and replays traces. `zonal` starts it; it can
//! also be run itself, with the same arguments.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use zonal_cli::command::finish;
use zonal_cli::interrupt;
use zonal_replay::{Cli, Command, record, replay};

fn main() -> ExitCode {
    let cli = Cli::parse();
    interrupt::watch();
    let mut out = io::stdout().lock();
    let result = match &cli.command {
        Command::Record(args) => record::run(args, &mut out),
        Command::Replay(args) => replay::run(args, &mut out),
    };
    finish(result, &mut out)
}
