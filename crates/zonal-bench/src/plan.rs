//! From arguments to runs: everything that can be known to be wrong is said here, before the
//! first subject is opened.
//!
//! ```
//! use clap::Parser;
//! use zonal_bench::{args::BenchLine, plan};
//! use zonal_cli::error::LabError;
//!
//! let line = BenchLine::parse_from(["bench", "hot-pair", "--threads", "0"]);
//! assert!(matches!(plan::plan(&line.args, &[]), Err(LabError::ZeroThreads)));
//! ```

use core::time::Duration;

use crate::args::{BenchArgs, PathArg};
use crate::engine::Run;
use crate::machine;
use crate::memory::MachineMemory;
use crate::options::Options;
use crate::subject::Group;
use crate::subjects::{self, Entry};
use crate::workload::{TASK_FRAMES, Workload, highalloc};
use zonal_cli::error::LabError;
use zonal_scenario::preset::is_called;

/// Frames a subject may keep in caches, tables and rounding beyond what the workload holds.
const SLACK: u64 = 32 << 20;

/// What a command line asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// CPUs to pin threads to, in order.
    pub cpus: Vec<usize>,
    /// The runs, one a workload.
    pub runs: Vec<Run>,
    /// Names given explicitly: these must come to a result.
    pub named: Vec<String>,
}

/// What can be said of a command line without opening anything.
#[derive(Clone, Debug)]
struct Checked {
    cpus: Vec<usize>,
    threads: Vec<usize>,
    workloads: Vec<Workload>,
    memory: MachineMemory,
}

/// Checks the arguments against the machine and the names of all subjects that the full bench
/// has, whether or not this program has them.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check(args: &BenchArgs) -> Result<(), LabError> {
    check_machine(args)?;
    check_names(args, &subjects::KNOWN)
}

/// Whether a program with `entries` has all that the arguments ask for.
#[must_use]
pub fn is_within(args: &BenchArgs, entries: &[Entry]) -> bool {
    let named: Vec<&String> = args.preset.iter().chain(&args.subjects).collect();
    let workloads = workloads(args);
    let has = |name: &&String| {
        let mut alike =
            entries.iter().filter(|entry| is_called(entry.profile.name, name)).peekable();
        alike.peek().is_some() && alike.all(|entry| workloads.iter().all(|it| entry.has(*it)))
    };
    !named.is_empty() && named.iter().all(has)
}

/// Checks the arguments against the machine and what is built in.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn plan(args: &BenchArgs, entries: &[Entry]) -> Result<Plan, LabError> {
    let Checked { cpus, threads, workloads, memory } = check_machine(args)?;
    let subjects = choose(args, entries)?;
    if args.touch {
        check_touch(&memory, &subjects, &threads)?;
    }
    let run = |workload| Run {
        workload,
        variants: variants(workload, args),
        subjects: subjects.clone(),
        threads: threads.clone(),
        memory: memory_of(workload, args),
        touch: args.touch,
        seed: args.seed,
        samples: args.samples,
        duration: args.duration,
    };
    let runs = workloads.into_iter().map(run).collect();
    Ok(Plan { cpus, runs, named: named(args, &subjects) })
}

/// What the names that the arguments give are called.
fn named(args: &BenchArgs, chosen: &[Entry]) -> Vec<String> {
    let given = || args.preset.iter().chain(&args.subjects);
    let is_given = |name: &&str| given().any(|text| is_called(name, text));
    let mut names: Vec<&str> = chosen.iter().map(|it| it.profile.name).filter(is_given).collect();
    names.dedup();
    names.into_iter().map(Into::into).collect()
}

fn workloads(args: &BenchArgs) -> Vec<Workload> {
    match Workload::from_name(&args.workload) {
        Some(workload) => vec![workload],
        None => Workload::ALL.to_vec(),
    }
}

fn check_machine(args: &BenchArgs) -> Result<Checked, LabError> {
    let cpus = machine::cpus()
        .map_err(|source| LabError::Machine { what: "find out which CPUs there are", source })?;
    let threads = threads(&args.threads, cpus.len())?;
    let workloads = workloads(args);
    if let [workload] = workloads[..] {
        check_single(workload, &threads, args)?;
    }
    let memory = MachineMemory::read().map_err(|source| LabError::Machine {
        what: "find out how much memory there is",
        source,
    })?;
    check_memory(args, &memory, &workloads, &threads)?;
    Ok(Checked { cpus, threads, workloads, memory })
}

/// The variants of `workload` that the arguments ask for. Options of other workloads do not
/// matter to it.
fn variants(workload: Workload, args: &BenchArgs) -> Vec<Options> {
    match workload {
        Workload::StressHighalloc => {
            let given = &args.delay_ms;
            let mut delays =
                if given.is_empty() { highalloc::DEFAULT_DELAYS.to_vec() } else { given.clone() };
            delays.sort_unstable();
            delays.dedup();
            let delay =
                |ms| Options { delay: Some(Duration::from_millis(ms)), ..Options::default() };
            delays.into_iter().map(delay).collect()
        }
        Workload::Fragment => {
            let (by_cpu, replace, compact) = (args.by_cpu, args.replace, args.compact);
            vec![Options { by_cpu, replace, compact, delay: None }]
        }
        _ => vec![Options::default()],
    }
}

/// Bytes of frames a subject of `workload` manages.
fn memory_of(workload: Workload, args: &BenchArgs) -> usize {
    match workload {
        Workload::StressHighalloc => args.highalloc_memory.unwrap_or(highalloc::DEFAULT_MEMORY),
        _ => args.memory,
    }
}

/// The thread counts: ascending, each once.
fn threads(asked: &[usize], cpus: usize) -> Result<Vec<usize>, LabError> {
    let mut threads = if asked.is_empty() { vec![1, cpus] } else { asked.to_vec() };
    threads.sort_unstable();
    threads.dedup();
    match (threads.first(), threads.last()) {
        (Some(0), _) => Err(LabError::ZeroThreads),
        (_, Some(&asked)) if asked > cpus => {
            Err(LabError::TooManyThreads { asked, available: cpus })
        }
        _ => Ok(threads),
    }
}

/// Those of `entries` that the arguments name; without any, all but references.
///
/// # Errors
///
/// A name that no entry has, or a path on which none of those named can be taken.
pub fn choose(args: &BenchArgs, entries: &[Entry]) -> Result<Vec<Entry>, LabError> {
    let known: Vec<_> = entries.iter().map(|it| (it.profile.name, it.profile.group)).collect();
    check_names(args, &known)?;
    let is_preset = |entry: &Entry| entry.profile.group == Group::Zonal;
    let nothing_named = args.preset.is_empty() && args.subjects.is_empty();
    let chosen = entries.iter().filter(|entry| {
        let names = |name: &String| is_called(entry.profile.name, name);
        let by_subject = args
            .subjects
            .iter()
            .any(|name| names(name) || (is_all(name) && subjects::in_all(entry, args.touch)));
        let by_preset =
            is_preset(entry) && args.preset.iter().any(|name| names(name) || is_all(name));
        let by_default = nothing_named && subjects::in_all(entry, args.touch);
        let path = !is_preset(entry) || args.path.takes(entry.profile.path);
        path && (by_subject || by_preset || by_default)
    });
    let chosen: Vec<Entry> = chosen.copied().collect();
    if chosen.is_empty() {
        let path = match args.path {
            PathArg::Owned => "owned",
            PathArg::Shared => "shared",
            PathArg::All => "all",
        };
        return Err(LabError::NothingChosen { path: path.into() });
    }
    Ok(chosen)
}

fn is_all(name: &str) -> bool {
    is_called("all", name)
}

/// Whether every name is known.
fn check_names(args: &BenchArgs, known: &[(&str, Group)]) -> Result<(), LabError> {
    let is_known = |name: &str, preset: bool| {
        let fits = |(known, group): &(&str, Group)| {
            is_called(known, name) && (!preset || *group == Group::Zonal)
        };
        is_all(name) || known.iter().any(fits)
    };
    if let Some(name) = args.preset.iter().find(|name| !is_known(name, true)) {
        let known = subjects::names(known, |group| group == Group::Zonal);
        return Err(LabError::UnknownPreset { name: name.clone(), known });
    }
    if let Some(name) = args.subjects.iter().find(|name| !is_known(name, false)) {
        let known = subjects::names(known, |_| true);
        return Err(LabError::UnknownSubject { name: name.clone(), known });
    }
    Ok(())
}

/// What `all` passes over in silence is an error when one workload was asked for.
fn check_single(workload: Workload, threads: &[usize], args: &BenchArgs) -> Result<(), LabError> {
    let (memory, delays) = (args.highalloc_memory.is_some(), !args.delay_ms.is_empty());
    let options = [
        ("--by-cpu", args.by_cpu, Workload::Fragment),
        ("--compact", args.compact, Workload::Fragment),
        ("--delay-ms", delays, Workload::StressHighalloc),
        ("--highalloc-memory", memory, Workload::StressHighalloc),
    ];
    for (option, given, of) in options {
        if given && workload != of {
            let (workload, of) = (workload.name(), of.name());
            return Err(LabError::OptionDoesNotApply { option, workload, of });
        }
    }
    let options = variants(workload, args).first().copied().unwrap_or_default();
    if args.touch && !workload.touches() {
        return Err(LabError::DoesNotTouch { workload: workload.name() });
    }
    if threads.iter().any(|&threads| workload.runs_on(threads, options)) {
        return Ok(());
    }
    let given: Vec<String> = threads.iter().map(usize::to_string).collect();
    Err(LabError::ThreadsDoNotFit {
        workload: workload.name(),
        wanted: workload.threads_wanted(options),
        given: given.join(","),
    })
}

fn check_memory(
    args: &BenchArgs,
    memory: &MachineMemory,
    workloads: &[Workload],
    threads: &[usize],
) -> Result<(), LabError> {
    for &workload in workloads {
        let asked = memory_of(workload, args) as u64;
        let touched = workload == Workload::StressHighalloc;
        if touched && asked > memory.available {
            return Err(LabError::TouchesTooMuch { needed: asked, available: memory.available });
        }
        if !touched && asked > memory.total && !args.overcommit {
            return Err(LabError::MoreThanThereIs { asked, total: memory.total });
        }
        let options = variants(workload, args).first().copied().unwrap_or_default();
        let fitting = threads.iter().copied().filter(|&n| workload.runs_on(n, options));
        let most = fitting.max().unwrap_or(0);
        let needed = (most * workload.bytes_per_thread()) as u64 + SLACK;
        if asked < needed {
            let workload = workload.name();
            return Err(LabError::TooLittleMemory { asked, workload, threads: most, needed });
        }
    }
    Ok(())
}

/// What touched subjects come to hold: each keeps the frames of each of its threads.
fn check_touch(
    memory: &MachineMemory,
    subjects: &[Entry],
    threads: &[usize],
) -> Result<(), LabError> {
    let tasks = (subjects.len() * threads.iter().sum::<usize>()) as u64;
    let needed = tasks * ((TASK_FRAMES as u64) << 12);
    if needed > memory.available {
        return Err(LabError::TouchesTooMuch { needed, available: memory.available });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BenchLine;
    use crate::program::Quick;
    use clap::Parser;

    fn args(line: &[&str]) -> BenchArgs {
        BenchLine::try_parse_from(["bench"].iter().chain(line)).expect("parses").args
    }

    #[test]
    fn a_program_knows_what_it_has_and_what_another_has() {
        let entries = subjects::references::<Quick>();
        let within = |line: &[&str]| is_within(&args(line), &entries);
        assert!(within(&["hot-pair", "--subjects", "free-list,null"]));
        assert!(!within(&["hot-pair"]), "all presets and peers are asked for");
        assert!(!within(&["mixed", "--subjects", "free-list"]), "it has no such workload");
        assert!(!within(&["hot-pair", "--preset", "Linux416"]));
        assert!(check(&args(&["hot-pair", "--preset", "Linux416"])).is_ok());
        assert!(within(&["hot-pair", "--subjects", "FREE_LIST,Null"]));
        assert!(check(&args(&["hot-pair", "--preset", "linux416,skip-merge"])).is_ok());
        assert!(check(&args(&["hot-pair", "--subjects", "zonal,MiMalloc,ALL"])).is_ok());
        let unknown = check(&args(&["hot-pair", "--preset", "mimalloc"]));
        assert!(matches!(unknown, Err(LabError::UnknownPreset { .. })));
    }

    #[test]
    fn thread_counts_are_sorted_and_bounded() {
        assert_eq!(threads(&[2, 1, 2], 2).expect("fine"), [1, 2]);
        assert_eq!(threads(&[], 1).expect("fine"), [1]);
        assert!(matches!(threads(&[0], 2), Err(LabError::ZeroThreads)));
        assert!(matches!(
            threads(&[3], 2),
            Err(LabError::TooManyThreads { asked: 3, available: 2 })
        ));
    }

    #[test]
    fn options_make_variants_of_their_own_workload_only() {
        let args = args(&["all", "--by-cpu", "--delay-ms", "5,1,5"]);
        let delays: Vec<_> =
            variants(Workload::StressHighalloc, &args).iter().map(|it| it.delay).collect();
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(delays, [ms(1), ms(5)]);
        let plain = variants(Workload::StressHighalloc, &self::args(&["all"]));
        assert_eq!(plain.iter().map(|it| it.delay).collect::<Vec<_>>(), [ms(1), ms(100)]);
        assert!(variants(Workload::Fragment, &args)[0].by_cpu);
        assert_eq!(variants(Workload::HotPair, &args), [Options::default()]);
    }

    #[test]
    fn memory_is_checked_against_the_machine_and_the_workload() {
        let machine = MachineMemory { total: 8 << 30, available: 4 << 30 };
        let check =
            |line: &[&str]| check_memory(&args(line), &machine, &[Workload::PageFault1], &[1, 2]);
        assert!(check(&["page-fault1"]).is_ok());
        let more = check(&["page-fault1", "--memory", "9G"]);
        assert!(matches!(more, Err(LabError::MoreThanThereIs { .. })));
        assert!(check(&["page-fault1", "--memory", "9G", "--overcommit"]).is_ok());
        let less = check(&["page-fault1", "--memory", "256M"]);
        assert!(matches!(less, Err(LabError::TooLittleMemory { threads: 2, .. })));
        let small = MachineMemory { total: 2 << 30, available: 1 << 30 };
        let highalloc =
            |line: &[&str]| check_memory(&args(line), &small, &[Workload::StressHighalloc], &[2]);
        assert!(highalloc(&["stress-highalloc"]).is_ok(), "it does not use --memory");
        let touched = highalloc(&["stress-highalloc", "--highalloc-memory", "3G", "--overcommit"]);
        assert!(matches!(touched, Err(LabError::TouchesTooMuch { .. })));
        let list = [Entry::of::<subjects::baseline::FreeList, Quick>()];
        assert!(check_touch(&machine, &list, &[1, 2]).is_ok());
        assert!(check_touch(&machine, &[list[0]; 11], &[1, 2]).is_err());
    }
}
