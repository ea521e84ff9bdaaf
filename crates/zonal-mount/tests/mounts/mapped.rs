//! Errors below a mapped file. The kernel reads and writes its pages, and takes counts that are too small for
//! something else than programs do.

use crate::Test;
use crate::model::Mapping;
use crate::parts::{Part, again};
use crate::process::Process;
use crate::space;
use libtest_mimic::Failed;
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

pub(crate) const TESTS: &[Test] = &[
    ("an_error_is_no_end_of_a_mapped_file", an_error_is_no_end_of_a_mapped_file),
    ("mapped_bytes_are_not_lost_silently", mapped_bytes_are_not_lost_silently),
];

const PAGE: usize = 4096;

fn an_error_is_no_end_of_a_mapped_file() -> Result<(), Failed> {
    let process = Process::new("16M")?;
    let (len, left) = (1 << 20, 5 * PAGE);
    fs::write(process.below.join("file"), vec![7; len])?;
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).open(process.root.join("file"))?;
    File::options().write(true).open(process.below.join("file"))?.set_len(left as u64)?;
    let (mut mapping, _) = Mapping::new(&file, 0, len)?;
    // The kernel reads more of it than this page, up to where it is an error.
    assert_eq!(mapping.bytes()[0], 7);
    assert_eq!(file.metadata()?.len(), len as u64);
    assert_eq!(mapping.bytes()[left - 1], 7, "the last that is there");
    file.write_all(b"more")?;
    assert_eq!(file.metadata()?.len(), len as u64 + 4);
    // A program gets what is there before the error.
    let mut bytes = vec![0; 2 * left];
    let mut file = File::open(process.root.join("file"))?;
    assert_eq!(file.read(&mut bytes)?, left);
    assert_eq!(bytes[..left], vec![7; left]);
    let error = file.read(&mut bytes).expect_err("it is not there");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    Ok(())
}

fn mapped_bytes_are_not_lost_silently() -> Result<(), Failed> {
    let process = Process::with_space("1M", 64 * PAGE)?;
    let name = |path: &Path| Ok::<_, Failed>(path.to_str().ok_or("a path")?.to_owned());
    let arguments = [name(&process.root.join("file"))?, name(&process.below)?];
    // The kernel may write a piece before it is whole: a page that then cannot be read ends the process that
    // writes to it, which is no silence.
    let output = again(Part::Filler, &arguments)?.output()?;
    if output.status.success() || output.status.signal() == Some(Signal::BUS.as_raw()) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {said}", output.status).into())
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
