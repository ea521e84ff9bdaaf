//! Files in memory. Only other processes than that of the tests touch them: a page that cannot be read ends the
//! process by a signal.

use crate::parts::{Part, again, success};
use libtest_mimic::Failed;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::ptr;

/// A piece of a file in memory, until dropped.
pub(crate) struct Mapping {
    at: *mut std::ffi::c_void,
    len: usize,
}

impl Mapping {
    /// From the page of `from` on; and where `from` is in it.
    pub(crate) fn new(file: &File, from: usize, len: usize) -> rustix::io::Result<(Self, usize)> {
        let skip = from % 4096;
        let (len, access) = (len + skip, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let at = unsafe {
            mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, (from - skip) as u64)
        }?;
        Ok((Self { at, len }, skip))
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped, within the file, which no other thread changes while this lives.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.len) }
    }

    fn sync(&mut self) -> Result<(), Failed> {
        // SAFETY: mapped by `new`.
        Ok(unsafe { msync(self.at, self.len, MsyncFlags::SYNC) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

/// The bytes of a piece of a file, mapped by another process, which fills it then with a byte: the kernel may
/// write them back whenever it likes, or is to at once.
pub(crate) fn in_a_process(
    path: &Path,
    (from, len): (usize, usize),
    fill: Option<(u8, bool)>,
) -> Result<Vec<u8>, Failed> {
    let fill = fill.map(|(byte, at_once)| [byte.to_string(), at_once.to_string()]);
    let numbers = [from.to_string(), len.to_string()].into_iter().chain(fill.into_iter().flatten());
    let arguments: Vec<_> = [path.into()].into_iter().chain(numbers.map(OsString::from)).collect();
    let seen = success(again(Part::Mapper, &arguments)?.output()?)?;
    if seen.len() == len { Ok(seen) } else { Err(format!("{} bytes of {len}", seen.len()).into()) }
}

/// The part of that process.
pub(crate) fn serve(arguments: &[String]) -> Result<i32, Failed> {
    let [path, from, len, fill @ ..] = arguments else { return Err("a path and a range".into()) };
    let file = File::options().read(true).write(true).open(path)?;
    let (mut mapping, skip) = Mapping::new(&file, from.parse()?, len.parse()?)?;
    io::stdout().write_all(&mapping.bytes()[skip..])?;
    if let [byte, at_once] = fill {
        mapping.bytes()[skip..].fill(byte.parse()?);
        if at_once.parse()? {
            mapping.sync()?;
        }
    }
    Ok(0)
}
