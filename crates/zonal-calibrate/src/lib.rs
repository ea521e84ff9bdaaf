//! `zonal calibrate`: the machine at hand as a machine file for the simulator.
//!
//! Everything is measured by real code on pinned threads, in rounds: one sample of each thing a
//! round, samples in which a thread lost its CPU left out, medians over the rest.
//!
//! | what | how |
//! |---|---|
//! | clocks | the time-stamp counter against the system's clock; a chain of additions, on 1, 2, 4, … cores at once |
//! | loads | chains through working sets of the size of each cache, and of memory, in huge pages if there are |
//! | lines of other CPUs | a round trip, which tells near from far; then a chain through lines that the other has just written |
//! | instructions | loops of locked additions, of a lock taken and released, of a counter |
//! | pages | clearing and copying; all cores of a socket at once for the rates |
//! | faults | reading maps the zero page, which costs the fault alone; writing allocates and clears too |
//! | waking | two threads that park and unpark each other |
//!
//! What user space cannot see (interrupts, LRU lists) is taken from a built-in machine, and
//! the file says so beside each value.
//!
//! ```no_run
//! use std::path::PathBuf;
//! use zonal_calibrate::{self, CalibrateArgs};
//!
//! let args = CalibrateArgs { quick: true, ..CalibrateArgs::default() };
//! zonal_calibrate::run(&args, &mut std::io::stdout())?;
//! # Ok::<(), zonal_calibrate::error::CalibrateError>(())
//! ```

pub mod alone;
pub mod buffer;
pub mod clock;
mod costs;
pub mod describe;
mod draft;
pub mod error;
pub mod paging;
pub mod quantity;
pub mod show;
pub mod survey;
pub mod together;
pub mod topology;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use zonal_cli::bar::Bar;
use zonal_sim::machine::check_name;

use error::CalibrateError;
use survey::{Effort, Survey};

/// The command line: the part of the `zonal` command that this program has.
pub type Cli = zonal_cli::command::Cli<Command>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure this machine and write a machine file for the simulator
    Calibrate(CalibrateArgs),
}

/// Arguments of `zonal calibrate`.
#[derive(Clone, Debug, Args)]
pub struct CalibrateArgs {
    /// Write a machine file for `zonal sim`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write over FILE if it exists, and write it even if the machine was too busy to be measured
    #[arg(long, requires = "out")]
    pub force: bool,
    /// What the machine is to be called
    #[arg(long, value_name = "NAME", default_value = CalibrateArgs::NAME, value_parser = parse_name)]
    pub name: String,
    /// Print JSON, one object a line, instead of tables
    #[arg(long)]
    pub json: bool,
    /// Measure for at most 5 seconds instead of 25: less exact
    #[arg(long)]
    pub quick: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}

impl CalibrateArgs {
    /// What a machine is called if nothing else is said.
    pub const NAME: &'static str = "this_machine";
}

impl Default for CalibrateArgs {
    fn default() -> Self {
        let name = Self::NAME.into();
        Self { out: None, force: false, name, json: false, quick: false, no_progress: false }
    }
}

/// Checks a machine's name.
///
/// # Errors
///
/// A text that says what a name is made of.
fn parse_name(name: &str) -> Result<String, String> {
    match check_name(name) {
        Ok(()) => Ok(name.into()),
        Err(violation) => Err(violation.to_string()),
    }
}

/// Measures the machine, prints what was found to `out`, and writes the machine file if one is
/// asked for.
///
/// # Errors
///
/// [`CalibrateError`]; what is wrong with the file is said before anything is measured, if it can
/// be known then. What was found is printed also where the machine was [too
/// busy](CalibrateError::Busy) for a file, and after [Ctrl-C](CalibrateError::Interrupted): then
/// there is a file if what was measured until then is enough for one.
pub fn run(args: &CalibrateArgs, out: &mut dyn Write) -> Result<(), CalibrateError> {
    if let Some(path) = &args.out {
        probe(path, args.force)?;
    }
    let effort = if args.quick { Effort::QUICK } else { Effort::FULL };
    let survey = survey::take(effort, Bar::of_time(args.no_progress))?;
    report(args, &survey, out)
}

/// Prints what was found, and writes the file.
fn report(
    args: &CalibrateArgs,
    survey: &Survey,
    out: &mut dyn Write,
) -> Result<(), CalibrateError> {
    let description = describe::describe(survey, &args.name)?;
    let text = description.to_toml()?;
    // A few rounds are not to replace the file of a whole survey, --force or not.
    let forced = args.force && !survey.is_cut_short();
    let sound = if args.out.is_none() || forced { Ok(()) } else { survey.check() };
    if let (Some(path), Ok(())) = (&args.out, &sound) {
        let unwritable = |source| CalibrateError::Unwritable { path: path.clone(), source };
        let mut file = open(path, args.force)?;
        file.write_all(text.as_bytes()).map_err(unwritable)?;
    }
    let print = CalibrateError::Print;
    if args.json {
        show::json(survey, &description, out).map_err(print)?;
    } else {
        show::tables(survey, &description, out).map_err(print)?;
        let told = match &args.out {
            Some(_) if sound.is_err() => Ok(()),
            Some(path) => writeln!(out, "\nThe machine file is {}.", path.display()),
            None => writeln!(out, "\nzonal calibrate --out FILE writes a machine file."),
        };
        told.map_err(print)?;
    }
    if survey.interrupted {
        let Survey { rounds, wanted, .. } = *survey;
        return Err(CalibrateError::Interrupted { rounds, wanted, unwritten: sound.is_err() });
    }
    sound
}

/// Opens the file for writing, empty.
fn open(path: &Path, force: bool) -> Result<File, CalibrateError> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(path).map_err(|source| said(path, source))
}

fn said(path: &Path, source: io::Error) -> CalibrateError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::AlreadyExists => CalibrateError::Exists { path },
        _ => CalibrateError::Unwritable { path, source },
    }
}

/// Finds out whether the file could be written, and leaves things as they were.
fn probe(path: &Path, force: bool) -> Result<(), CalibrateError> {
    let new = OpenOptions::new().write(true).create_new(true).open(path);
    match new {
        Ok(_) => fs::remove_file(path).map_err(|source| said(path, source)),
        Err(error) if force && error.kind() == ErrorKind::AlreadyExists => {
            let old = OpenOptions::new().write(true).open(path);
            old.map(|_| ()).map_err(|source| said(path, source))
        }
        Err(source) => Err(said(path, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::quantity::{Quantity, Sample};
    use super::*;
    use zonal_cli::error::Failure;

    #[test]
    fn names_are_checked() {
        assert_eq!(parse_name("my_box-2"), Ok("my_box-2".into()));
        for bad in ["", "_x", "-x", "My", "a b", "a\nb", &"x".repeat(65)] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
        assert!(parse_name(CalibrateArgs::NAME).is_ok());
    }

    #[test]
    fn of_a_busy_machine_no_file_is_written_unless_forced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("box.toml");
        let args = CalibrateArgs { out: Some(path.clone()), ..CalibrateArgs::default() };
        let (quiet, lost) = (&describe::LEAST, Quantity::Memory);
        let mut busy = Survey::of(1, 2, quiet);
        busy.ledger.add(lost, Sample { value: 900.0, lost_cpu: true });
        let mut short = Survey::of(1, 2, quiet);
        short.rounds = survey::LEAST_ROUNDS - 1;
        for (survey, said) in [(&busy, "its CPU: load_memory"), (&short, "4 of 21 rounds")] {
            let mut out = Vec::new();
            let error = report(&args, survey, &mut out).expect_err("it cannot be trusted");
            assert!(matches!(error, CalibrateError::Busy { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(said) && text.contains("--force"), "{text}");
            assert_eq!(error.exit_code(), 1);
            assert!(!out.is_empty() && !path.exists(), "what was found is shown");
        }
        // Shown only, there is no harm in it.
        let only_shown = CalibrateArgs::default();
        report(&only_shown, &busy, &mut io::sink()).expect("no file is asked for");
        let forced = CalibrateArgs { force: true, ..args.clone() };
        report(&forced, &busy, &mut io::sink()).expect("it is forced");
        let written = fs::read_to_string(&path).expect("written");
        assert!(written.contains("all disturbed"), "{written}");
        fs::remove_file(&path).expect("removed");
        report(&args, &Survey::of(1, 2, quiet), &mut io::sink()).expect("a quiet machine");
        assert!(path.exists());
    }

    #[test]
    fn after_ctrl_c_there_is_a_file_if_there_were_rounds_enough_for_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("box.toml");
        fs::write(&path, "of a whole survey").expect("written");
        let forced =
            CalibrateArgs { out: Some(path.clone()), force: true, ..CalibrateArgs::default() };
        let mut survey = Survey::of(1, 2, &describe::LEAST);
        survey.interrupted = true;
        survey.rounds = survey::LEAST_ROUNDS - 1;
        let report = |args: &CalibrateArgs, survey: &Survey| {
            let mut out = Vec::new();
            let error = report(args, survey, &mut out).expect_err("it was interrupted");
            assert!(!out.is_empty(), "what was found is shown");
            assert_eq!(error.exit_code(), zonal_cli::interrupt::EXIT_CODE);
            let told = String::from_utf8(out).expect("UTF-8").contains("The machine file is");
            (error.to_string(), told)
        };
        let (error, told) = report(&forced, &survey);
        assert!(error.contains("after 4 of 21 rounds") && !told, "{error}");
        assert!(error.contains(&format!("at least {} rounds", survey::LEAST_ROUNDS)), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "of a whole survey");
        let (error, _) = report(&CalibrateArgs::default(), &survey);
        assert!(!error.contains("no file"), "none was asked for: {error}");

        survey.rounds = survey::LEAST_ROUNDS;
        let (error, told) = report(&forced, &survey);
        assert!(error.contains("after 5 of 21 rounds") && !error.contains("no file"), "{error}");
        assert!(told && fs::read_to_string(&path).expect("there").contains("[topology]"));
    }

    #[test]
    fn a_probe_leaves_nothing_behind_and_touches_nothing() {
        let path = std::env::temp_dir().join(format!("zonal-probe-{}", std::process::id()));
        probe(&path, false).expect("can be made");
        assert!(!path.exists());
        fs::write(&path, "mine").expect("written");
        assert!(matches!(probe(&path, false), Err(CalibrateError::Exists { .. })));
        probe(&path, true).expect("can be written over");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "mine");
        fs::remove_file(&path).expect("removed");
        let nowhere = probe(Path::new("/nonexistent/x.toml"), true);
        assert!(matches!(nowhere, Err(CalibrateError::Unwritable { .. })), "{nowhere:?}");
    }
}
