//! Subjects in processes of their own: what another project's allocator does to its process, for
//! instance when memory is refused to it, costs its own rows and no other's.
//!
//! A program that has such subjects [starts itself](ARGUMENT) once for each case. The child opens the
//! case, and takes a sample of it whenever it is asked; between samples all its threads sleep. It
//! ends when its standard input does.
//!
//! ```text
//! parent: {"subject":"talc","workload":"hot-pair","threads":1,...}
//! child:  "Open"
//! parent: 10
//! child:  {"Sample":{"runs":[...],"round_trip":null,"figures":[...]}}
//! ```
//!
//! ```
//! use zonal_bench::program::Quick;
//! use zonal_bench::{child, subjects};
//!
//! // References stay in the process that measures them.
//! let entries = child::peers(subjects::references::<Quick>());
//! assert!(entries.iter().all(|entry| !entry.is_apart()));
//! ```

use core::time::Duration;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::case::{Case, CaseError, Sample, Spec, ThreadRun};
use crate::figures::Figures;
use crate::machine;
use crate::options::Options;
use crate::pool::Pool;
use crate::subject::{Group, Profile, Setup, SubjectError};
use crate::subjects::Entry;
use crate::workload::Workload;
use zonal_cli::error::LabError;

/// The argument with which a program starts itself: it is then to [`serve`].
pub const ARGUMENT: &str = "case";

/// Bytes that are kept of what a child says on stderr.
const LAST_WORDS: usize = 1024;
/// Bytes of the stack of the thread that reads that.
const STACK: usize = 128 << 10;

/// Why there is nothing from a child.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// What the subject said there.
    #[error("{0}")]
    Said(String),
    /// The process ended before it was told to.
    #[error("its process died: {0}")]
    Died(Death),
    /// It could not be started.
    #[error("cannot start a process for it: {0}")]
    Start(#[source] io::Error),
    /// It answers another question.
    #[error("its process answers what it was not asked")]
    Unasked,
    /// What it said is no answer.
    #[error("what its process says is no answer: {0}")]
    Garbled(#[from] serde_json::Error),
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Death {
    /// What the system says.
    pub status: Option<ExitStatus>,
    /// The last that it said on stderr.
    pub last_words: String,
}

impl core::fmt::Display for Death {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}")?,
            None => f.write_str("nothing is known of its end")?,
        }
        if self.last_words.is_empty() { Ok(()) } else { write!(f, ": {}", self.last_words) }
    }
}

/// `entries`, with the allocators of other projects in processes of their own. For programs that
/// [`serve`].
#[must_use]
pub fn peers(entries: Vec<Entry>) -> Vec<Entry> {
    let apart = |entry: Entry| match entry.profile.group {
        Group::Peer => entry.apart(),
        Group::Zonal | Group::Reference => entry,
    };
    entries.into_iter().map(apart).collect()
}

/// The case that a child is to open.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    subject: String,
    path: String,
    workload: String,
    memory: usize,
    threads: usize,
    touch: bool,
    seed: u64,
    by_cpu: bool,
    replace: u32,
    compact: bool,
    delay: Option<Duration>,
}

impl Asked {
    fn of(profile: &Profile, spec: &Spec) -> Self {
        let Spec { workload, setup: Setup { memory, threads, touch, .. }, seed, options } = *spec;
        Self {
            subject: profile.name.into(),
            path: profile.path.to_string(),
            workload: workload.name().into(),
            memory,
            threads,
            touch,
            seed,
            by_cpu: options.by_cpu,
            replace: options.replace,
            compact: options.compact,
            delay: options.delay,
        }
    }

    fn open(&self, entries: &[Entry]) -> Result<(Arc<dyn Case>, Pool), String> {
        let is = |entry: &&Entry| {
            entry.profile.name == self.subject && entry.profile.path.to_string() == self.path
        };
        let entry = entries.iter().find(is).ok_or("this program has no such subject")?;
        let workload = Workload::from_name(&self.workload).ok_or("there is no such workload")?;
        let cpus = machine::cpus().map_err(|error| error.to_string())?;
        let cpus = cpus.get(..self.threads).ok_or("there are fewer CPUs than threads")?;
        let pool = Pool::new(cpus).map_err(|error| format!("cannot start threads: {error}"))?;
        let setup =
            Setup { memory: self.memory, threads: self.threads, touch: self.touch, regions: None };
        let Self { by_cpu, replace, compact, delay, .. } = *self;
        let options = Options { by_cpu, replace, compact, delay };
        let spec = Spec { workload, setup, seed: self.seed, options };
        Ok((entry.open(&spec).map_err(|error| error.to_string())?, pool))
    }
}

/// What a child says.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The case is open.
    Open,
    /// A sample of it.
    Sample(Box<Taken>),
    /// Why there is no case, or no sample.
    No(String),
}

/// A [`Sample`], with times since the first thread's start.
#[derive(Debug, Serialize, Deserialize)]
struct Taken {
    runs: Vec<TakenRun>,
    round_trip: Option<(f64, f64)>,
    figures: Figures,
}

#[derive(Debug, Serialize, Deserialize)]
struct TakenRun {
    frames: u64,
    start: Duration,
    wall: Duration,
    lost_cpu: bool,
}

impl Taken {
    fn of(sample: &Sample) -> Self {
        let first = sample.runs.iter().map(|run| run.start).min();
        let run = |run: &ThreadRun| TakenRun {
            frames: run.frames,
            start: first.map_or(Duration::ZERO, |first| run.start - first),
            wall: run.wall,
            lost_cpu: run.lost_cpu,
        };
        let runs = sample.runs.iter().map(run).collect();
        Self { runs, round_trip: sample.round_trip, figures: sample.figures }
    }

    fn sample(self) -> Sample {
        // Any instant will do: starts are compared with each other.
        let first = Instant::now();
        let run = |TakenRun { frames, start, wall, lost_cpu }: TakenRun| ThreadRun {
            frames,
            start: first + start,
            wall,
            lost_cpu,
        };
        let runs = self.runs.into_iter().map(run).collect();
        Sample { runs, round_trip: self.round_trip, figures: self.figures }
    }
}

/// Opens the subject of `profile` for `spec` in a process of its own.
///
/// # Errors
///
/// [`SubjectError::Child`].
pub(crate) fn open(profile: &Profile, spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
    let mut process = Process::start().map_err(ChildError::Start)?;
    match process.ask(&Asked::of(profile, spec))? {
        Answer::Open => Ok(Arc::new(Remote(Mutex::new(process)))),
        Answer::No(why) => Err(ChildError::Said(why).into()),
        Answer::Sample(_) => Err(ChildError::Unasked.into()),
    }
}

/// A case in a child.
struct Remote(Mutex<Process>);

impl Case for Remote {
    fn sample(self: Arc<Self>, _pool: &Pool, reps: u64) -> Result<Sample, CaseError> {
        let mut process = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match process.ask(&reps)? {
            Answer::Sample(taken) => Ok(taken.sample()),
            Answer::No(why) => Err(ChildError::Said(why).into()),
            Answer::Open => Err(ChildError::Unasked.into()),
        }
    }
}

/// A child, from its parent's side.
struct Process {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    last_words: Option<JoinHandle<String>>,
}

impl Process {
    fn start() -> io::Result<Self> {
        // The program that runs, whatever lies at its path by now.
        let mut command = Command::new("/proc/self/exe");
        command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a group of its own Ctrl-C does not reach it: the parent decides when it is over.
        let mut child = command.process_group(0).spawn()?;
        let missing = || io::Error::other("it has no pipe");
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let reader = thread::Builder::new().stack_size(STACK);
        let last_words = Some(reader.spawn(|| last_line(stderr))?);
        Ok(Self { child, questions, answers, last_words })
    }

    fn ask(&mut self, question: &impl Serialize) -> Result<Answer, ChildError> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        if let Some(questions) = &mut self.questions {
            // One that is dead does not answer, which is looked at next.
            let _ = questions.write_all(&line);
        }
        let mut answer = String::new();
        match self.answers.read_line(&mut answer) {
            Ok(_) if answer.ends_with('\n') => Ok(serde_json::from_str(&answer)?),
            _ => Err(ChildError::Died(self.death())),
        }
    }

    fn death(&mut self) -> Death {
        let status = self.child.wait().ok();
        let last_words = self.last_words.take().and_then(|thread| thread.join().ok());
        Death { status, last_words: last_words.unwrap_or_default() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.questions = None;
        // What it still does is of no use any more, and it has nothing to clean up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads to the end and returns the last line that says something.
fn last_line(mut stream: impl Read) -> String {
    let (mut buffer, mut tail) = ([0; LAST_WORDS], Vec::new());
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        tail.extend_from_slice(&buffer[..read]);
        tail.drain(..tail.len().saturating_sub(LAST_WORDS));
    }
    let text = String::from_utf8_lossy(&tail);
    let says = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: ");
    text.lines().rfind(says).unwrap_or_default().trim().to_owned()
}

/// What a program does that was started with [`ARGUMENT`]: opens the case that it is asked for,
/// of `entries`, and takes samples of it until its standard input ends.
///
/// # Errors
///
/// [`LabError::Print`]: a question cannot be read, or an answer not be printed.
pub fn serve(entries: &[Entry], out: &mut dyn Write) -> Result<(), LabError> {
    Ok(answer(entries, io::stdin().lock().lines(), out)?)
}

fn answer(
    entries: &[Entry],
    mut questions: impl Iterator<Item = io::Result<String>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut say = |answer: &Answer| {
        serde_json::to_writer(&mut *out, answer)?;
        writeln!(out)?;
        out.flush()
    };
    let Some(first) = questions.next() else { return Ok(()) };
    let asked: Asked = serde_json::from_str(&first?)?;
    let (case, pool) = match asked.open(entries) {
        Ok(opened) => opened,
        Err(why) => return say(&Answer::No(why)),
    };
    say(&Answer::Open)?;
    for question in questions {
        let reps: u64 = serde_json::from_str(&question?)?;
        say(&match Arc::clone(&case).sample(&pool, reps) {
            Ok(sample) => Answer::Sample(Box::new(Taken::of(&sample))),
            Err(error) => Answer::No(error.to_string()),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Quick;
    use crate::subjects::{baseline, references};

    fn spec(threads: usize) -> Spec {
        let setup = Setup { memory: 64 << 20, threads, touch: false, regions: None };
        Spec { workload: Workload::HotPair, setup, seed: 1, options: Options::default() }
    }

    /// What a child answers to the case of `spec` and `questions`.
    fn answers(spec: &Spec, questions: &[&str]) -> Vec<Answer> {
        let profile = Entry::of::<baseline::FreeList, Quick>().profile;
        let first = serde_json::to_string(&Asked::of(&profile, spec)).expect("JSON");
        let lines = [first].into_iter().chain(questions.iter().map(|it| (*it).to_owned()));
        let mut out = Vec::new();
        answer(&references::<Quick>(), lines.map(Ok), &mut out).expect("it answers");
        let text = String::from_utf8(out).expect("UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[test]
    fn a_child_opens_a_case_and_takes_samples_of_it() {
        let mut said = answers(&spec(1), &["10", "20"]).into_iter();
        assert!(matches!(said.next(), Some(Answer::Open)));
        for reps in [10, 20] {
            let Some(Answer::Sample(taken)) = said.next() else { panic!("no sample") };
            let sample = taken.sample();
            assert_eq!(sample.runs.len(), 1);
            assert_eq!(sample.runs[0].frames, reps * 1024);
            assert!(sample.ns_per_frame() > 0.0 && !sample.started_apart());
        }
        assert!(said.next().is_none());
    }

    #[test]
    fn a_child_says_why_there_is_no_case() {
        let said = answers(&spec(100_000), &[]);
        assert!(matches!(&said[..], [Answer::No(why)] if why.contains("CPUs")), "{said:?}");
        let fragment = Spec { workload: Workload::Fragment, ..spec(1) };
        let said = answers(&fragment, &["1"]);
        assert!(matches!(said.last(), Some(Answer::No(_))), "{said:?}");
        assert!(answer(&[], [Ok("nonsense".into())].into_iter(), &mut Vec::new()).is_err());
        assert!(answer(&[], core::iter::empty(), &mut Vec::new()).is_ok());
    }

    #[test]
    fn the_last_line_that_says_something_is_kept() {
        let text = format!("{}\nmemory is gone\nnote: see below\n\n", "x".repeat(3000));
        assert_eq!(last_line(text.as_bytes()), "memory is gone");
        assert_eq!(last_line(&b""[..]), "");
        let death = Death { status: None, last_words: "memory is gone".into() };
        assert_eq!(death.to_string(), "nothing is known of its end: memory is gone");
    }
}
