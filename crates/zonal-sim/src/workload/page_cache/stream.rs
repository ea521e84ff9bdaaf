//! A stream: a file that is written, read and deleted.

use super::kernel::Kernel;
use crate::cache::SimFile;
use crate::mix::page_cache::{AGAIN_MS, BEGIN_MS, TRIES, WINDOW};
use crate::task::{count, idle};
use fastrand::Rng;
use std::rc::Rc;
use zonal_cache::frames::PAGE;
use zonal_cache::lru::LruLock;
use zonal_cache::{Advice, CacheError};

/// One file, and who works on it.
pub(super) struct Stream<L: LruLock> {
    random: Rng,
    kernel: Rc<Kernel<L>>,
    file: SimFile<L>,
    pages: usize,
    /// As many bytes as are read at once.
    bytes: Vec<u8>,
}

impl<L: LruLock> Stream<L> {
    pub(super) fn new(random: Rng, kernel: &Rc<Kernel<L>>, file: SimFile<L>, pages: usize) -> Self {
        // A window is asked for at once, and nothing beyond.
        file.advise(Advice::Random);
        Self { random, kernel: kernel.clone(), file, pages, bytes: vec![0; WINDOW * PAGE] }
    }

    /// Writes the file, reads it, deletes it, with all streams in step.
    pub(super) fn round(&mut self) {
        self.begin();
        self.write();
        self.begin();
        self.read();
        self.begin();
        self.file.truncate(0).expect("the disk has no errors");
    }

    /// Threads do not start at the same moment.
    fn begin(&mut self) {
        self.kernel.meet();
        idle(self.kernel.ms(BEGIN_MS * self.random.f64()));
    }

    /// Does `some`, again while there is no memory; however often it asked in vain.
    fn again(&self, mut some: impl FnMut() -> Result<usize, CacheError>) {
        for _ in 0..TRIES {
            match some() {
                Ok(_) => return,
                // All that could be freed is on its way to the disk.
                Err(CacheError::NoFrames | CacheError::NoRoom { .. }) => {
                    idle(self.kernel.ms(AGAIN_MS));
                }
                Err(error) => panic!("the disk has no errors: {error}"),
            }
        }
        count("failures", 1);
    }

    fn write(&self) {
        for at in 0..self.pages {
            self.kernel.work.charge_copy();
            self.again(|| self.file.write_at(&self.bytes[..PAGE], (at * PAGE) as u64));
        }
    }

    fn read(&mut self) {
        let mut bytes = core::mem::take(&mut self.bytes);
        for from in (0..self.pages).step_by(WINDOW) {
            let to = (from + WINDOW).min(self.pages);
            let into = &mut bytes[..(to - from) * PAGE];
            self.again(|| self.file.read_at(into, (from * PAGE) as u64));
            (from..to).for_each(|_| self.kernel.work.charge_copy());
        }
        self.bytes = bytes;
    }
}
