//! Random operations on a file of the mount beside a vector of bytes, with the bound at an eighth of the
//! file: reads, writes, mapped reads and writes, truncation, allocation, holes, syncs, closing and
//! opening again, and mounting anew. The same seeds each time; `ZONAL_TEST_EFFORT` makes more of them.
//! The mount is another process: one that maps files of its own mount can wait for itself for ever. So is the one
//! that maps: a page that cannot be read ends it by a signal.

use crate::process::Process;
use crate::{Test, mapping};
use libtest_mimic::Failed;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zonal_mount::LEAST_MEMORY;

pub(crate) const TESTS: &[Test] = &[
    ("random_operations_are_as_on_a_vector", random_operations_are_as_on_a_vector),
    ("canary_a_byte_that_is_changed_below_is_found", canary_a_byte_changed_below_is_found),
];

/// The longest that the file becomes: eight times the bound.
const MOST: usize = 8 * LEAST_MEMORY;
/// The least, as the command has it.
const MEMORY: &str = "1M";
const STEPS: u32 = 400;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }

    /// A range within the first `end` bytes, sometimes of whole pages.
    fn range(&mut self, end: usize) -> (usize, usize) {
        let len = match self.below(3) {
            0 => self.below(200),
            1 => self.below(10_000),
            _ => self.below(300_000),
        };
        let (mut from, mut len) = (self.below(end), len + 1);
        if self.below(3) == 0 {
            (from, len) = (from & !4095, len.next_multiple_of(4096));
        }
        (from, len.min(end.saturating_sub(from)))
    }
}

fn open(path: &Path) -> Result<File, Failed> {
    Ok(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?)
}

struct Run {
    process: Process,
    file: Option<File>,
    model: Vec<u8>,
    random: Random,
}

impl Run {
    fn file(&self) -> &File {
        self.file.as_ref().expect("it is open")
    }

    fn compare(&self, from: usize, bytes: &[u8], how: &str) -> Result<(), Failed> {
        let expected = &self.model[from..from + bytes.len()];
        match bytes.iter().zip(expected).position(|(is, should)| is != should) {
            Some(at) => {
                Err(format!("{how}: byte {} is {}, not {}", from + at, bytes[at], expected[at])
                    .into())
            }
            None => Ok(()),
        }
    }

    fn read(&mut self, from: usize, len: usize) -> Result<(), Failed> {
        let mut bytes = vec![0; len];
        self.file().read_exact_at(&mut bytes, from as u64)?;
        self.compare(from, &bytes, "read")
    }

    fn map(&mut self, writes: bool) -> Result<(), Failed> {
        if self.model.is_empty() {
            return Ok(());
        }
        let (from, len) = self.random.range(self.model.len());
        let byte = self.random.below(256) as u8;
        let fill = writes.then(|| (byte, self.random.below(2) == 0));
        let seen = mapping::in_a_process(&self.process.root.join("file"), (from, len), fill)?;
        self.compare(from, &seen, "mapped")?;
        if writes {
            self.model[from..from + len].fill(byte);
        }
        Ok(())
    }

    fn allocate(&mut self) -> Result<(), Failed> {
        let (from, len) = self.random.range(MOST);
        let end = from + len;
        match self.random.below(3) {
            0 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(self.file(), punch, from as u64, len as u64)?;
                let end = end.min(self.model.len());
                self.model[from.min(end)..end].fill(0);
            }
            1 => {
                fallocate(self.file(), FallocateFlags::empty(), from as u64, len as u64)?;
                self.model.resize(self.model.len().max(end), 0);
            }
            _ => {
                fallocate(self.file(), FallocateFlags::ZERO_RANGE, from as u64, len as u64)?;
                self.model.resize(self.model.len().max(end), 0);
                self.model[from..end].fill(0);
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Failed> {
        match self.random.below(16) {
            0..=3 => {
                let (from, len) = self.random.range(self.model.len());
                self.read(from, len)?;
            }
            4..=8 => {
                let (from, len) = self.random.range(MOST);
                let first = self.random.below(256);
                let bytes: Vec<u8> = (first..first + len).map(|byte| byte as u8).collect();
                self.file().write_all_at(&bytes, from as u64)?;
                self.model.resize(self.model.len().max(from + len), 0);
                self.model[from..from + len].copy_from_slice(&bytes);
            }
            9 => {
                let len = self.random.below(MOST);
                self.file().set_len(len as u64)?;
                self.model.resize(len, 0);
            }
            10 => self.map(false)?,
            11 => self.map(true)?,
            12 | 13 => self.allocate()?,
            14 => self.file().sync_data()?,
            _ => self.reopen()?,
        }
        let len = self.file().metadata()?.len();
        if len == self.model.len() as u64 {
            Ok(())
        } else {
            Err(format!("{len} bytes long, not {}", self.model.len()).into())
        }
    }

    /// Closes the file, sometimes unmounts, and opens it again.
    fn reopen(&mut self) -> Result<(), Failed> {
        self.file = None;
        if self.random.below(6) == 0 {
            self.process.unmount()?;
            let below = std::fs::read(self.process.below.join("file"))?;
            if below != self.model {
                return Err("what was written back differs".into());
            }
            self.process.again(MEMORY)?;
        }
        self.file = Some(open(&self.process.root.join("file"))?);
        Ok(())
    }
}

fn run(seed: u64, mut after: impl FnMut(&mut Run, u32)) -> Result<(), Failed> {
    let process = Process::new(MEMORY)?;
    let file = Some(open(&process.root.join("file"))?);
    let mut run = Run { process, file, model: Vec::new(), random: Random(seed) };
    for step in 0..STEPS {
        run.process.progress();
        run.step().map_err(|error| format!("seed {seed}, step {step}: {error:?}"))?;
        after(&mut run, step);
    }
    let len = run.model.len();
    run.read(0, len)
}

fn random_operations_are_as_on_a_vector() -> Result<(), Failed> {
    let effort = std::env::var("ZONAL_TEST_EFFORT").ok().and_then(|effort| effort.parse().ok());
    let seeds = 3 * effort.unwrap_or(1_u64);
    (1..=seeds).try_for_each(|seed| run(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), |_, _| ()))
}

fn canary_a_byte_changed_below_is_found() -> Result<(), Failed> {
    let found = run(0x9E37_79B9_7F4A_7C15, |run, step| {
        if step % 50 == 49
            && let Ok(below) = open(&run.process.below.join("file"))
        {
            let _ = below.write_all_at(&[0xA5; 64 << 10], 1 << 20);
        }
    });
    assert!(found.is_err(), "it was not found");
    Ok(())
}
