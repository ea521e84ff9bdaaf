//! Errors below a mapped file. The kernel reads and writes its pages, and takes counts that are too small for
//! something else than programs do.

use crate::mapping::Mapping;
use crate::parts::{Part, again, end_of, success};
use crate::process::Process;
use crate::{Test, space};
use libtest_mimic::Failed;
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("an_error_is_no_end_of_a_mapped_file", an_error_is_no_end_of_a_mapped_file),
    ("mapped_bytes_are_not_lost_silently", mapped_bytes_are_not_lost_silently),
];

const PAGE: usize = 4096;
/// Bytes of a file, and what is left of it below.
const LEN: usize = 1 << 20;
const LEFT: usize = 5 * PAGE;
/// Much more than the slowest writing needs.
const MINUTES: Duration = Duration::from_secs(15 * 60);

fn an_error_is_no_end_of_a_mapped_file() -> Result<(), Failed> {
    let process = Process::new("16M")?;
    let [path, below] = [&process.root, &process.below].map(|place| place.join("file"));
    fs::write(&below, vec![7; LEN])?;
    success(again(Part::Reader, &[path, below])?.output()?).map(drop)
}

/// The part of another process: the file below becomes shorter, of which the mount knows nothing.
pub(crate) fn read(arguments: &[String]) -> Result<i32, Failed> {
    let [path, below] = arguments else { return Err("two arguments".into()) };
    let mut file = OpenOptions::new().read(true).append(true).open(path)?;
    File::options().write(true).open(below)?.set_len(LEFT as u64)?;
    let (mut mapping, _) = Mapping::new(&file, 0, LEN)?;
    // The kernel reads more of it than this page, up to where it is an error.
    assert_eq!(mapping.bytes()[0], 7);
    assert_eq!(file.metadata()?.len(), LEN as u64);
    assert_eq!(mapping.bytes()[LEFT - 1], 7, "the last that is there");
    file.write_all(b"more")?;
    assert_eq!(file.metadata()?.len(), LEN as u64 + 4);
    // A program gets what is there before the error.
    let mut bytes = vec![0; 2 * LEFT];
    let mut file = File::open(path)?;
    assert_eq!(file.read(&mut bytes)?, LEFT);
    assert_eq!(bytes[..LEFT], vec![7; LEFT]);
    let error = file.read(&mut bytes).expect_err("it is not there");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    Ok(0)
}

fn mapped_bytes_are_not_lost_silently() -> Result<(), Failed> {
    let process = Process::with_space("1M", 64 * PAGE)?;
    let arguments = [&process.root.join("file"), &process.below];
    let child = again(Part::Filler, &arguments)?.stderr(Stdio::piped()).spawn()?;
    // The kernel may have it wait for each page that is written back.
    let output = end_of(child, MINUTES, || process.progress())?;
    // The kernel may write a piece before it is whole: a page that then cannot be read ends the process that
    // writes to it, which is no silence.
    if output.status.signal() == Some(Signal::BUS.as_raw()) {
        return Ok(());
    }
    success(output).map(drop)
}

/// The part of another process, of which no other test has children: fills a mapped file of the mount, which has
/// neither memory nor space for it, until it is told so.
pub(crate) fn fill(arguments: &[String]) -> Result<i32, Failed> {
    let [path, below] = arguments else { return Err("two arguments".into()) };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path)?;
    // In pieces that no limit is a multiple of.
    let (piece, pieces) = (100 * PAGE, 4);
    file.set_len((pieces * piece) as u64)?;
    let (mut mapping, _) = Mapping::new(&file, 0, pieces * piece)?;
    for at in (0..pieces).map(|number| number * piece) {
        mapping.bytes()[at..at + piece].fill(7);
        let mut bytes = vec![0; piece];
        // The kernel writes the piece before it has it read.
        let mut read = file.read_exact_at(&mut bytes, at as u64);
        let code = |read: &io::Result<()>| read.as_ref().err().and_then(io::Error::raw_os_error);
        if code(&read) == Some(Errno::NOMEM.raw_os_error()) {
            // Of that it says so by another error: this is no memory to read it.
            space::resize(Path::new(below), pieces * piece)?;
            read = file.read_exact_at(&mut bytes, at as u64);
        }
        if code(&read) == Some(Errno::IO.raw_os_error()) {
            return Ok(0);
        }
        read?;
        if bytes.iter().any(|&byte| byte != 7) {
            return Err(format!("lost at {at}").into());
        }
    }
    Ok(0)
}
