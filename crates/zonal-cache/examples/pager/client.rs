//! What a client's process does, in place of a virtual machine monitor: it makes memory that is not there, hands its faults
//! over, and touches all of it as a guest does, comparing each byte.

use crate::handover::{PAGE, connected, hand_over, last_words};
use crate::memory::Memory;
use crate::uffd::Uffd;
use rustix::fd::AsFd;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio, exit};
use std::thread::ScopedJoinHandle;
use std::{env, thread};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The first argument of a client's process.
const CLIENT: &str = "--client";

/// What the snapshots have: pages near each other differ.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3) as u8 ^ (at >> 12) as u8).collect()
}

/// What a client does beside touching all of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Plain,
    /// It gives memory back, as by a balloon, before it touches it and after, and then reads zeros there.
    Balloon,
    /// It says when it is in the middle, and stays there.
    Half,
}

const KINDS: [(&str, Kind); 3] =
    [("plain", Kind::Plain), ("balloon", Kind::Balloon), ("half", Kind::Half)];

/// A client of a pager.
pub(crate) struct Task {
    /// Where the pager listens.
    pub(crate) socket: PathBuf,
    /// Bytes of its memory, which are as many of the snapshot.
    pub(crate) len: usize,
    /// Threads that touch it.
    pub(crate) cpus: usize,
    pub(crate) kind: Kind,
}

impl Task {
    /// This program as a process that does it; its output is one line, which is [`Took`].
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        command.arg(CLIENT).arg(&self.socket).args([self.len, self.cpus].map(|it| it.to_string()));
        command.arg(kind).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }

    /// If this process is a client: what it is to do.
    fn of_process() -> Result<Option<Self>> {
        let arguments: Vec<OsString> = env::args_os().skip(1).collect();
        let [first, socket, len, cpus, kind] = &arguments[..] else { return Ok(None) };
        if first != CLIENT {
            return Ok(None);
        }
        let number = |text: &OsString| {
            Ok::<_, Box<dyn Error + Send + Sync>>(text.to_str().ok_or("no number")?.parse()?)
        };
        let kind = KINDS.iter().find(|(name, _)| kind == name).ok_or("no such kind")?.1;
        let (len, cpus) = (number(len)?, number(cpus)?);
        Ok(Some(Self { socket: socket.into(), len, cpus, kind }))
    }
}

/// When a client began to touch its memory and when it had all, by a clock that all processes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Took {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Took {
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (begin, end) = line.trim_end().split_once(' ')?;
        Some(Self { begin: begin.parse().ok()?, end: end.parse().ok()? })
    }
}

/// Nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Ends the process when the pager says that it fills no more, or has gone: this process has a descriptor of its own of the faults,
/// for otherwise its memory would be zero then, and its threads would read that.
fn watch(socket: impl AsFd) -> ! {
    match last_words(socket) {
        Ok(text) if text.is_empty() => eprintln!("the pager is gone"),
        Ok(text) => eprintln!("the pager: {text}"),
        Err(error) => eprintln!("the pager cannot be heard: {error}"),
    }
    exit(1)
}

/// Pages `from`, `from + every` and so on of `pages`, here and there, as a guest touches them; each is as in `all`.
fn touch(parts: [&[u8]; 2], all: &[u8], pages: Range<usize>, every: usize) -> Result<()> {
    const SIZE: usize = PAGE as usize;
    let [low, high] = parts;
    let count = all.len() / SIZE;
    for page in pages.step_by(every) {
        let at = page * 7919 % count * SIZE;
        let is = if at < low.len() { &low[at..][..SIZE] } else { &high[at - low.len()..][..SIZE] };
        if is != &all[at..at + SIZE] {
            return Err(format!("byte {at} or one of the next {SIZE} is another").into());
        }
    }
    Ok(())
}

/// The first part of that many of `len` bytes, in whole pages.
fn part(len: usize, parts: usize) -> usize {
    len / PAGE as usize / parts * PAGE as usize
}

/// What a client of `len` bytes gives back before it touches it, in its lower region.
fn untouched(len: usize) -> Range<usize> {
    let low = part(len, 4);
    part(low, 4)..part(low, 2)
}

/// How many pages that are.
pub(crate) fn given_back(len: usize) -> usize {
    untouched(len).len() / PAGE as usize
}

/// Lets go of all of it and touches some again, until it has been told that this is enough.
fn inflate(spare: &mut Memory, is_enough: impl Fn() -> bool) -> Result<()> {
    while !is_enough() {
        let all = 0..spare.bytes().len();
        spare.give_back(all)?;
        if spare.bytes()[..2 * PAGE as usize].iter().any(|byte| *byte != 0) {
            return Err("memory that was given back has bytes again".into());
        }
    }
    Ok(())
}

fn run(task: &Task) -> Result<()> {
    let mut all = pattern(task.len);
    let socket = connected(&task.socket)?;
    let faults = Uffd::new()?;
    // As guests have it: a part below the hole for devices, and one above it. And what only the balloon uses.
    let split = part(task.len, 4);
    let mut low = Memory::new(&faults, split)?;
    let high = Memory::new(&faults, task.len - split)?;
    let mut spare = Memory::new(&faults, 16 * PAGE as usize)?;
    hand_over(&socket, &faults, &[low.region(0), high.region(split), spare.region(0)])?;
    thread::spawn(move || watch(socket));
    if task.kind == Kind::Balloon {
        let range = untouched(task.len);
        low.give_back(range.clone())?;
        all[range].fill(0);
    }
    let pages = task.len / PAGE as usize;
    let end = if task.kind == Kind::Half { pages / 2 } else { pages };
    let begin = now();
    let parts = [low.bytes(), high.bytes()];
    thread::scope(|scope| {
        let all = &all;
        let cpus: Vec<_> = (0..task.cpus)
            .map(|cpu| scope.spawn(move || touch(parts, all, cpu..end, task.cpus)))
            .collect();
        if task.kind == Kind::Balloon {
            inflate(&mut spare, || cpus.iter().all(ScopedJoinHandle::is_finished))?;
        }
        cpus.into_iter().try_for_each(|cpu| cpu.join().expect("it does not panic"))
    })?;
    let took = Took { begin, end: now() };
    if task.kind == Kind::Balloon {
        let range = part(split, 8)..part(split, 4);
        low.give_back(range.clone())?;
        all[range].fill(0);
        touch([low.bytes(), high.bytes()], &all, 0..pages, 1)?;
    }
    writeln!(io::stdout(), "{} {}", took.begin, took.end)?;
    if task.kind == Kind::Half {
        loop {
            thread::park();
        }
    }
    Ok(())
}

/// A client that gets `SIGBUS` is as it should be, and leaves no file.
fn without_core() -> Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    Ok(setrlimit(Resource::Core, none)?)
}

/// If this process is a client: what it ends with.
pub(crate) fn ended() -> Option<ExitCode> {
    let done = match Task::of_process() {
        Ok(None) => return None,
        Ok(Some(task)) => without_core().and_then(|()| run(&task)),
        Err(error) => Err(error),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("client: {error}");
            ExitCode::FAILURE
        }
    })
}
