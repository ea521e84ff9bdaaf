//! Writes that are on their way together, for one who waits for all of them.

use super::{Request, Ring, Work, joined};
use crate::store::{StoreError, Write};
use io_uring::{opcode, types};
use parking_lot::{Condvar, Mutex};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Writes that are on their way together at most: pages of these are not let go before the last has ended.
const MOST_TOGETHER: usize = 32;

/// What the kernel said of a write: how many bytes it took, or why none.
type Said = Result<u64, StoreError>;

/// What has ended of several writes.
#[derive(Default)]
pub(super) struct Together {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    left: usize,
    /// Since it was looked last.
    said: Vec<(usize, Said)>,
}

impl Together {
    pub(super) fn end(&self, number: usize, said: Said) {
        let mut state = self.state.lock();
        state.left -= 1;
        state.said.push((number, said));
        self.ended.notify_one();
    }

    /// Waits until some have ended: which, and what was said. Empty if none is left.
    fn next(&self) -> Vec<(usize, Said)> {
        let mut state = self.state.lock();
        self.ended.wait_while(&mut state, |state| state.left > 0 && state.said.is_empty());
        mem::take(&mut state.said)
    }
}

/// Waits for all when it is dropped, also if the caller panics: the kernel reads their pages until then.
struct Waits<'a>(&'a Together);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        self.0.ended.wait_while(&mut state, |state| state.left > 0);
    }
}

impl Ring {
    /// How many writes may be on their way together: some, so that reads find room beside them.
    pub(crate) fn writes_at_once(&self) -> usize {
        (self.inner.depth as usize / 2).clamp(1, MOST_TOGETHER)
    }

    /// Has the kernel do the writes of these that `are` to be, as many as there is room for. `ended` is told of each of them by
    /// its number: what the kernel said, or nothing if it did not take it. Waits for all.
    pub(crate) fn write(
        &self,
        file: BorrowedFd<'_>,
        writes: &[Write<'_>],
        are: impl Fn(&Write<'_>) -> bool,
        ended: &mut dyn FnMut(usize, Option<Said>),
    ) {
        let together = Arc::new(Together::default());
        let waits = Waits(&together);
        let mut refused = Vec::new();
        for (number, write) in writes.iter().enumerate().filter(|(_, write)| are(write)) {
            // Before it can end.
            together.state.lock().left += 1;
            if !self.give_write(file, write, Work::Write(together.clone(), number)) {
                together.state.lock().left -= 1;
                refused.push(number);
            }
        }
        self.begin();
        refused.into_iter().for_each(|number| ended(number, None));
        loop {
            let said = together.next();
            if said.is_empty() {
                break;
            }
            said.into_iter().for_each(|(number, said)| ended(number, Some(said)));
        }
        drop(waits);
    }

    /// Whether it was taken. Who gives it waits for it.
    fn give_write(&self, file: BorrowedFd<'_>, write: &Write<'_>, work: Work) -> bool {
        if !self.enter() {
            return false;
        }
        // The kernel reads them only.
        let pieces = joined(write.pages.iter().map(|page| (page.as_ptr().cast_mut(), page.len())));
        let request = Box::new(Request { work, pieces });
        let (target, offset) = (types::Fd(file.as_raw_fd()), write.offset);
        let entry = match (self.buffer_of(&request.pieces), &request.pieces[..]) {
            (Some(buffer), [piece]) => {
                let (at, len) = (piece.iov_base.cast(), piece.iov_len as u32);
                opcode::WriteFixed::new(target, at, len, buffer).offset(offset).build()
            }
            (_, pieces) => {
                let count = pieces.len() as u32;
                opcode::Writev::new(target, pieces.as_ptr(), count).offset(offset).build()
            }
        };
        self.give(request, entry).is_ok()
    }
}
