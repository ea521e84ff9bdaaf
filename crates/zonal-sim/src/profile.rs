//! What is counted while the machine runs: waiting by lock and by what the CPU was doing,
//! accesses by class of line, and the workload's own figures.

use crate::lines::Served;
use crate::outcome::{LineProfile, LockProfile, Spin};
use crate::ticks::Ticks;

/// What a CPU is doing, as far as waiting is put down to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Anything but the next two.
    #[default]
    Other,
    /// Allocating frames.
    Alloc,
    /// Freeing frames.
    Free,
}

impl Phase {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Other, "other"), (Self::Alloc, "alloc"), (Self::Free, "free")];
}

/// One stay in a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The lock's number in the profile.
    pub(crate) number: u32,
    pub(crate) contended: bool,
    pub(crate) waited: Ticks,
    pub(crate) held: Ticks,
    pub(crate) transferred: Ticks,
}

#[derive(Clone, Copy, Default)]
struct LineCount {
    served: [u64; Served::COUNT],
    time: Ticks,
    queued: Ticks,
}

#[derive(Clone, Copy, Default)]
struct LockCount {
    class: u8,
    index: u32,
    taken: u64,
    contended: u64,
    waited: Ticks,
    held: Ticks,
    transferred: Ticks,
}

/// All counts since the last [`clear`](Measured::clear).
#[derive(Default)]
pub(crate) struct Measured {
    names: Vec<&'static str>,
    lines: Vec<LineCount>,
    /// By class, then by phase.
    spins: Vec<[Ticks; Phase::ALL.len()]>,
    locks: Vec<LockCount>,
    counts: Vec<(&'static str, u64)>,
}

impl Measured {
    /// A class of lines and of locks.
    pub(crate) fn expect(&mut self, name: &'static str, class: u8) {
        if usize::from(class) == self.names.len() {
            self.names.push(name);
            self.lines.push(LineCount::default());
            self.spins.push([Ticks::default(); Phase::ALL.len()]);
        }
    }

    /// An access was served.
    #[inline]
    pub(crate) fn line(&mut self, class: u8, served: Served, time: Ticks) {
        let count = &mut self.lines[usize::from(class)];
        count.served[served as usize] += 1;
        count.time += time;
    }

    /// A CPU waited for a line that was on its way to another.
    pub(crate) fn queued(&mut self, class: u8, time: Ticks) {
        self.lines[usize::from(class)].queued += time;
    }

    /// The number of a lock that was not known: which of its class it is.
    pub(crate) fn number_lock(&mut self, class: u8, index: u32) -> u32 {
        self.locks.push(LockCount { class, index, ..LockCount::default() });
        self.locks.len() as u32 - 1
    }

    /// A lock was released.
    pub(crate) fn hold(&mut self, hold: &Hold) {
        // Exploring puts one allocator on a machine after the other: its locks have the numbers that
        // the first gave them, and no caller reads a profile there.
        let Some(count) = self.locks.get_mut(hold.number as usize) else { return };
        count.taken += 1;
        count.contended += u64::from(hold.contended);
        count.waited += hold.waited;
        count.held += hold.held;
        count.transferred += hold.transferred;
    }

    /// A CPU waited for a lock.
    pub(crate) fn spin(&mut self, class: u8, phase: Phase, time: Ticks) {
        self.spins[usize::from(class)][phase as usize] += time;
    }

    /// The workload did something.
    pub(crate) fn count(&mut self, name: &'static str, by: u64) {
        match self.counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += by,
            None => self.counts.push((name, by)),
        }
    }

    /// Forgets everything but the classes and the locks there are, and what the workload counts: what it counts
    /// no more is 0 from now on, and not unknown.
    pub(crate) fn clear(&mut self) {
        self.lines.fill(LineCount::default());
        self.spins.fill([Ticks::default(); Phase::ALL.len()]);
        for lock in &mut self.locks {
            *lock = LockCount { class: lock.class, index: lock.index, ..LockCount::default() };
        }
        self.counts.iter_mut().for_each(|(_, count)| *count = 0);
    }

    /// What the workload counted, in the order of first use.
    pub(crate) fn counts(&self) -> &[(&'static str, u64)] {
        &self.counts
    }

    pub(crate) fn spins(&self) -> Vec<Spin> {
        let of = |(name, times): (&&'static str, &[Ticks; 3])| {
            let (name, times) = (*name, *times);
            Phase::ALL
                .map(|(phase, during)| Spin::new(name, during, times[phase as usize].cycles()))
        };
        let all = self.names.iter().zip(&self.spins).flat_map(of);
        all.filter(|spin| spin.cycles > 0).collect()
    }

    /// The locks that were taken, by class and which of it they are.
    pub(crate) fn locks(&self) -> Vec<LockProfile> {
        let mut taken: Vec<_> = self.locks.iter().filter(|lock| lock.taken > 0).collect();
        taken.sort_by_key(|lock| (self.names[usize::from(lock.class)], lock.index));
        taken
            .into_iter()
            .map(|lock| LockProfile {
                class: self.names[usize::from(lock.class)],
                index: lock.index,
                taken: lock.taken,
                contended: lock.contended,
                waited: lock.waited.cycles(),
                held: lock.held.cycles(),
                transferred: lock.transferred.cycles(),
            })
            .collect()
    }

    pub(crate) fn lines(&self) -> Vec<LineProfile> {
        let of = |(name, count): (&&'static str, &LineCount)| {
            let at = |served: Served| count.served[served as usize];
            LineProfile {
                class: name,
                private: at(Served::Private),
                shared: at(Served::Shared),
                near: at(Served::Near),
                far: at(Served::Far),
                memory: at(Served::Memory) + at(Served::MemoryFar),
                streamed: at(Served::Streamed),
                queued: count.queued.cycles(),
                cycles: count.time.cycles() + count.queued.cycles(),
            }
        };
        self.names.iter().zip(&self.lines).map(of).filter(|line| line.cycles > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_no_more_is_zero_and_not_unknown() {
        let mut measured = Measured::default();
        measured.count("pages", 3);
        measured.count("refused", 0);
        assert_eq!(measured.counts(), [("pages", 3), ("refused", 0)]);
        measured.clear();
        assert_eq!(measured.counts(), [("pages", 0), ("refused", 0)]);
    }
}
