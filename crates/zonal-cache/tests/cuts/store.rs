//! A store that is cut off: from some operation on it refuses all, or some of them.

use super::model::PAGE;
use super::switch::{Cuts, Switch};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use zonal_cache::MemoryStore;
use zonal_cache::store::{Purpose, Store, StoreError, Write};

/// What it does wrong, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lie {
    No,
    /// It does not keep what it is told to.
    Flush,
    /// It is cut when it is told to keep that, and not at once.
    Cut,
    /// It has zeroes then.
    Zero,
    /// What is cut off comes back.
    Back,
    /// It says that the last of several writes was made.
    Together,
    /// It says that one of several writes was made, and makes it before it writes, or is cut, the next time.
    Early,
    /// Of what is to be read later it has zeroes.
    Read,
}

/// What is still to be done.
enum Later {
    Len(u64),
    Zero(u64, u64),
}

pub(super) struct Cut {
    memory: MemoryStore,
    lie: Lie,
    at_once: usize,
    /// A page that is written is one operation.
    switch: Switch,
    later: Mutex<Vec<Later>>,
    /// Batches that were made in part.
    pub(super) parted: AtomicUsize,
    /// Writes that another thread asked for than the one that made it.
    pub(super) aside: AtomicUsize,
    made_by: ThreadId,
}

impl Cut {
    pub(super) fn new(off: Range<u64>, at_once: usize, lie: Lie) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryStore::default(),
            lie,
            at_once,
            switch: Switch::new(off),
            later: Mutex::default(),
            parted: AtomicUsize::new(0),
            aside: AtomicUsize::new(0),
            made_by: thread::current().id(),
        })
    }

    fn do_later(&self, later: Later) {
        self.later.lock().unwrap_or_else(PoisonError::into_inner).push(later);
    }
}

impl Cuts for Cut {
    fn switch(&self) -> &Switch {
        &self.switch
    }
    fn left(&self, keeps: &mut dyn FnMut(u64) -> bool) -> Vec<u8> {
        self.memory.cut_power(keeps);
        self.memory.durable()
    }
}

impl Store for Cut {
    fn len(&self) -> Result<u64, StoreError> {
        self.memory.len()
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.switch.may()?;
        self.memory.read(offset, pages)
    }
    /// Page by page: it may be cut off between any two.
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        self.aside.fetch_add((thread::current().id() != self.made_by).into(), Relaxed);
        (offset..).step_by(PAGE).zip(pages).try_for_each(|(offset, page)| {
            self.switch.may()?;
            self.memory.write(offset, &[page])
        })
    }
    fn writes_at_once(&self) -> usize {
        self.at_once
    }
    /// In an order of its own. Of those that fail it says so, or nothing.
    fn write_each(
        &self,
        writes: &[Write<'_>],
        purpose: Purpose,
        ended: &mut dyn FnMut(usize, Result<(), StoreError>),
    ) {
        let mut numbers = self.switch.shuffled(writes.len());
        if self.lie == Lie::Together && numbers.len() > 1 {
            numbers.pop().into_iter().for_each(|number| ended(number, Ok(())));
        }
        let (mut well, mut ill) = (0, 0);
        for number in numbers {
            let done = purpose.write(self, writes[number].offset, writes[number].pages);
            well += usize::from(done.is_ok());
            ill += usize::from(done.is_err());
            if done.is_ok() || self.switch.below(2) == 0 {
                ended(number, done);
            }
        }
        self.parted.fetch_add(usize::from(well > 0 && ill > 0), Relaxed);
    }
    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.switch.may()?;
        match self.lie {
            Lie::Cut => self.do_later(Later::Len(len)),
            Lie::Back => {
                let before = self.memory.bytes();
                self.memory.set_len(len)?;
                let rest = before.get(len as usize..).unwrap_or(&[]);
                return self.memory.write(len, &[rest]);
            }
            _ => return self.memory.set_len(len),
        }
        Ok(())
    }
    fn zero(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        if self.lie == Lie::Zero {
            self.do_later(Later::Zero(offset, len));
            return Ok(());
        }
        let zeroes = [0; PAGE];
        let pages = vec![&zeroes[..]; len as usize / PAGE];
        self.write(offset, &pages)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.switch.may()?;
        let later = std::mem::take(&mut *self.later.lock().unwrap_or_else(PoisonError::into_inner));
        for later in later {
            match later {
                Later::Len(len) => self.memory.set_len(len)?,
                Later::Zero(offset, len) => {
                    self.memory.write(offset, &[&vec![0; len as usize]])?;
                }
            }
        }
        if self.lie == Lie::Flush { Ok(()) } else { self.memory.flush() }
    }
}
