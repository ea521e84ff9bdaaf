//! Memory of a client, as a virtual machine monitor makes it for its guest.

use crate::handover::Region;
use crate::uffd::Uffd;
use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;

/// Memory that is not there until it is touched.
pub(crate) struct Memory {
    at: *mut c_void,
    len: usize,
}

impl Memory {
    pub(crate) fn new(faults: &Uffd, len: usize) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }?;
        let memory = Self { at, len };
        faults.register(at.addr() as u64, len as u64)?;
        Ok(memory)
    }

    pub(crate) fn region(&self, offset: usize) -> Region {
        let (address, len) = (self.at.addr() as u64, self.len as u64);
        Region { address, len, offset: offset as u64 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped while `self` lives. A byte is read when its page has come, and not otherwise: until then the thread waits. No thread
        // writes; pages go by `give_back` only, to which no reference is left.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.len) }
    }

    /// Lets pages go; waits until the pager knows.
    pub(crate) fn give_back(&mut self, range: Range<usize>) -> Result<()> {
        let len = self.bytes()[range.clone()].len();
        let at = self.at.wrapping_byte_add(range.start);
        // SAFETY: the range is of this mapping, as the line before the last has checked. No reference to its bytes is left, and whatever
        // they are then is a byte.
        unsafe { madvise(at, len, Advice::LinuxDontNeed) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}
