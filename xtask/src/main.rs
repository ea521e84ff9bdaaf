//! Checks that the project runs on itself: `cargo xtask preflight` runs all of them, and
//! `cargo xtask STEP` one. `.ci/run` is the preflight and nothing else.
//!
//! A step that lacks its tool fails and says how to get the tool; it never passes unrun.

mod beside;
mod c_inline;
mod capi;
mod deny;
mod explore;
mod fsx;
mod fuzz;
mod golden;
mod kernel;
mod kernel_size;
mod no_std;
mod package;
mod paths;
mod programs;
mod rooms;
mod sanitize;
mod steps;
mod tools;
mod walk_cost;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use sanitize::Sanitizer;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::{Duration, Instant};
use steps::Step;
use xshell::Shell;

/// The checks of the zonal workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
    /// With `golden`: writes what was counted to golden.toml instead of comparing.
    #[arg(long, global = true)]
    bless: bool,
    /// With `rooms`: the source directory, if it is another.
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    /// With `loom` and `shuttle`: more preemptions and schedules than in a preflight, where they take long.
    #[arg(long, global = true)]
    wide: bool,
    #[command(flatten)]
    fsx: fsx::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Everything, in order; stops at the first failure.
    Preflight {
        /// Steps to leave out.
        #[arg(long, value_delimiter = ',')]
        skip: Vec<Step>,
    },
    /// Instructions and cache lines of an allocation, by walk and dirty policy.
    WalkCost {
        /// Print JSON, one object a line.
        #[arg(long)]
        json: bool,
    },
    /// The suites over every host and preset; the tests of a preflight have fewer pairs.
    Matrix,
    /// Random schedules for some time; goes on where the last such run ended
    Explore(explore::Explore),
    /// A fuzz target for some time
    Fuzz(fuzz::Fuzz),
    /// The tests of zonal-host under a sanitizer of the compiler.
    Sanitize {
        /// Which.
        sanitizer: Sanitizer,
    },
    /// Builds the C interface and installs it.
    Capi(capi::Install),
    /// Links a kernel's side in C with the library by link-time optimisation, and looks that its functions are inlined.
    CInline,
    /// The bootable kernel, in an emulator.
    #[command(subcommand)]
    Kernel(kernel::Kernel),
    #[command(flatten)]
    Step(Step),
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(Args { command, bless, root: sources, wide, fsx: options }: Args) -> Result<()> {
    let shell = Shell::new()?;
    shell.change_dir(root()?);
    tools::use_installed(&shell)?;
    match command {
        Command::Step(Step::Fsx) if !bless && sources.is_none() => fsx::run(&shell, &options),
        _ if options.are_given() => anyhow::bail!("--operations and --seed go with `fsx` only"),
        Command::Step(Step::Loom) if !bless && sources.is_none() => steps::loom(&shell, wide),
        Command::Step(Step::Shuttle) if !bless && sources.is_none() => steps::shuttle(&shell, wide),
        _ if wide => anyhow::bail!("--wide goes with `loom` and `shuttle` only"),
        Command::Step(Step::Golden) if sources.is_none() => golden::run(&shell, bless),
        Command::Step(Step::Rooms) if !bless => rooms::run(&shell, sources.as_deref()),
        _ if sources.is_some() => anyhow::bail!("--root goes with `rooms` only"),
        _ if bless => anyhow::bail!("--bless goes with `golden` only"),
        Command::Preflight { skip } => preflight(&shell, &skip),
        Command::WalkCost { json } => walk_cost::run(&shell, json),
        Command::Matrix => steps::matrix(&shell),
        Command::Explore(args) => explore::run(&shell, &args),
        Command::Fuzz(args) => args.run(&shell),
        Command::Capi(install) => install.run(&shell),
        Command::CInline => c_inline::run(&shell),
        Command::Kernel(kernel) => kernel.run(&shell),
        Command::Sanitize { sanitizer } => sanitize::run(&shell, sanitizer),
        Command::Step(step) => step.run(&shell),
    }
}

/// The workspace's directory: where this package's directory is.
fn root() -> Result<PathBuf> {
    let manifest = std::env::var("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let parent = std::path::Path::new(&manifest).parent();
    parent.map(Into::into).with_context(|| format!("{manifest} has no parent"))
}

/// How a preflight builds, and each of its steps. All is built once and not again: what would speed the next build up only
/// costs time. Fewer pieces repeat less of what is generic: two take a tenth less of two CPUs than four, for all tests; with
/// one the largest test would be compiled on one CPU when all others are done.
const SETTINGS: [(&str, &str); 3] = [
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_PROFILE_DEV_CODEGEN_UNITS", "2"),
    ("CARGO_PROFILE_TEST_CODEGEN_UNITS", "2"),
];

fn preflight(shell: &Shell, skip: &[Step]) -> Result<()> {
    SETTINGS.into_iter().for_each(|(name, value)| shell.set_var(name, value));
    let steps = Step::value_variants().iter().copied();
    let steps: Vec<Step> = steps.filter(|step| !skip.contains(step)).collect();
    let (start, mut times) = (Instant::now(), Vec::new());
    let outcome = run_all(shell, &steps, &mut times);
    match &outcome {
        Ok(()) => eprintln!("\n=== all passed\n{}", table(&times, start)),
        Err(_) => eprintln!("\n=== passed before the failure\n{}", table(&times, start)),
    }
    outcome
}

/// Runs steps in order, of those for one CPU that follow each other two at a time.
fn run_all(shell: &Shell, steps: &[Step], times: &mut Vec<(Step, Duration)>) -> Result<()> {
    let (mut number, all) = (0, steps.len());
    let mut says = |step: &Step| {
        number += 1;
        eprintln!("\n=== [{number}/{all}] {step}: {}", step.about());
    };
    for steps in steps.chunk_by(|one, next| one.is_for_one_cpu() && next.is_for_one_cpu()) {
        steps.iter().for_each(&mut says);
        if let [step] = *steps {
            let begin = Instant::now();
            step.run(shell).with_context(|| failed(step))?;
            times.push((step, begin.elapsed()));
        } else {
            run_side_by_side(shell, steps, times)?;
        }
    }
    Ok(())
}

/// Two at a time; each shows what it said when it has ended.
fn run_side_by_side(
    shell: &Shell,
    steps: &[Step],
    times: &mut Vec<(Step, Duration)>,
) -> Result<()> {
    let program = |&step: &Step| {
        // By cargo: an earlier step may have built this program anew, and its file is another one since.
        let mut command = process::Command::new("cargo");
        command.args(["xtask", &step.to_string()]).envs(SETTINGS);
        command.current_dir(shell.current_dir());
        (step, command)
    };
    beside::two_at_a_time(steps.iter().map(program), |step, ended| {
        eprintln!("\n=== {step}");
        eprint!("{}", ended.said);
        ensure!(ended.status.success(), failed(step));
        times.push((step, ended.time));
        Ok(())
    })
}

/// What is said of a step that fails.
fn failed(step: Step) -> String {
    format!("`{step}` failed; `cargo xtask {step}` runs it alone")
}

/// The steps that passed, with their times; two may have run side by side.
fn table(times: &[(Step, Duration)], start: Instant) -> String {
    let line = |name: &str, time: Duration| format!("{name:<12} {:>7.1} s\n", time.as_secs_f64());
    let lines: String = times.iter().map(|(step, time)| line(&step.to_string(), *time)).collect();
    lines + &line("total", start.elapsed())
}
