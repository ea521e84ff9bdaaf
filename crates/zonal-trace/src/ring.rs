//! A ring of events in memory that the host owns: many writers, interrupt handlers included, none
//! of which ever waits; the oldest events are overwritten; what is lost is counted.
//!
//! - Mechanism: a writer takes a ticket (one fetch-add); ticket modulo capacity is its cell. The
//!   cell's sequence word says whose event is in it: twice the ticket + 2, one less while it is
//!   being written. A writer that finds another in its cell (who was overtaken by a whole round)
//!   drops its event instead of waiting. A reader takes a cell's words and believes them if the
//!   sequence before and after is that of the ticket it is looking for.
//! - Sizes: [`CELL_WORDS`] words an event; one cache line each for the head and for the mask of
//!   what is recorded, then the cells. The memory should begin at a cache line.
//! - One ring for each CPU keeps the heads apart: [`Sink::ring`] may choose by CPU.
//!
//! Orderings, and what each pairs with:
//!
//! | access | pairs with |
//! |---|---|
//! | writer: sequence becomes odd, compare-exchange acquire | the release of the cell's previous writer: its words are older than these |
//! | writer: words, store release | reader: words, load acquire: who has seen one of them sees the odd sequence, too |
//! | writer: sequence becomes even, store release | reader: sequence, load acquire: sees all words; the next writer's acquire |
//! | reader: sequence again, load relaxed | ordered after the words by their acquire |
//! | head, fetch-add release | the reader's load acquire: a cell is not taken for the one it was before its writer's last event. For the writers it is only a number |
//! | mask, relaxed | nothing |
//!
//! ```
//! use core::sync::atomic::AtomicU64;
//! use zonal::policy::trace::{Event, Point, Trace};
//! use zonal::{CpuId, Order, Pfn};
//! use zonal_trace::ring::{Ring, Sink, ToRing, words_for};
//!
//! // A kernel's statics: nothing is allocated, nothing has to run first.
//! static WORDS: [AtomicU64; words_for(1024)] = [const { AtomicU64::new(0) }; words_for(1024)];
//! static RING: Ring<'static, AtomicU64> = Ring::new(&WORDS);
//!
//! struct Kernel;
//! impl Sink for Kernel {
//!     type Word = AtomicU64;
//!     fn ring() -> Option<&'static Ring<'static, AtomicU64>> { Some(&RING) }
//!     fn now() -> u64 { 1 } // the time-stamp counter
//!     fn cpu() -> CpuId { CpuId(0) }
//! }
//! /// To build the allocator with.
//! type Preset = zonal::preset::Traced<zonal::preset::Zonal, ToRing<Kernel>>;
//!
//! let freed = || Event::Free { pfn: Pfn::new(7), order: Order::ZERO };
//! ToRing::<Kernel>::emit(Point::Free, freed); // not recorded yet
//! RING.enable(&[Point::Alloc, Point::Free]);
//! ToRing::<Kernel>::emit(Point::Free, freed);
//!
//! let mut reader = RING.reader();
//! assert_eq!(reader.read().map(|record| record.event), Some(freed()));
//! assert_eq!((reader.read(), reader.lost()), (None, 0));
//! ```

use crate::pack::Packed;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use zonal::CpuId;
use zonal::platform::AtomicWord;
use zonal::policy::trace::{Event, Point, Trace};

/// Words of an event: sequence, time, and the two of [`Packed`].
pub const CELL_WORDS: usize = 4;
/// Words of a cache line of 64 bytes.
const LINE: usize = 8;
/// Tickets handed out.
const HEAD: usize = 0;
/// Kinds that are recorded, a bit each. On a line that no event writes to.
const ENABLED: usize = LINE;
/// Where in the bytes of the words the mask of the kinds that are recorded begins, the lowest byte first on x86-64.
pub const ENABLED_BYTE: usize = ENABLED * size_of::<u64>();
/// The first cell.
const CELLS: usize = 2 * LINE;

/// Words that a ring of `events` events, rounded up to a power of two, needs.
#[must_use]
pub const fn words_for(events: usize) -> usize {
    CELLS + events.next_power_of_two() * CELL_WORDS
}

/// A ring over words that its maker owns, all zero at first. See the [module](self).
pub struct Ring<'a, W> {
    words: &'a [W],
    /// Cells: a power of two, or 0.
    capacity: u64,
}

impl<'a, W> Ring<'a, W> {
    /// A ring in `words`, with as many cells as fit, rounded down to a power of two. Memory for
    /// less than one makes a ring that loses everything.
    #[must_use]
    pub const fn new(words: &'a [W]) -> Self {
        let cells = words.len().saturating_sub(CELLS) / CELL_WORDS;
        Self { words, capacity: if cells == 0 { 0 } else { 1 << cells.ilog2() } }
    }

    /// Events it keeps.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl<W: AtomicWord> Ring<'_, W> {
    /// From now on records events of these kinds, and no others. A writer on another CPU may
    /// act on the old choice for a moment.
    pub fn enable(&self, points: &[Point]) {
        let mask = points.iter().fold(0, |mask, point| mask | 1 << point.index());
        if let Some(word) = self.words.get(ENABLED) {
            word.store(mask, Relaxed);
        }
    }

    /// Whether events of that kind are recorded.
    #[must_use]
    #[inline(always)]
    pub fn is_on(&self, point: Point) -> bool {
        let mask = self.words.get(ENABLED).map_or(0, |word| word.load(Relaxed));
        mask & 1 << point.index() != 0
    }

    /// Records an event, whether its kind is enabled or not. `time` is the host's. Never waits;
    /// about ten accesses to words. `false`: it was dropped, because a writer that has been
    /// overtaken by a whole round is still in the cell; readers count it.
    #[must_use]
    pub fn record(&self, time: u64, cpu: CpuId, event: &Event) -> bool {
        let Some(head) = self.words.get(HEAD) else { return false };
        // Release: a reader that sees the ticket sees what this writer wrote before.
        let ticket = head.fetch_add(1, Release);
        let Some([sequence, words @ ..]) = self.cell(ticket) else { return false };
        let done = done(ticket);
        let seen = sequence.load(Relaxed);
        if is_written(seen) || seen > done {
            return false;
        }
        // Acquire: the previous writer's words come before this one's.
        if sequence.compare_exchange(seen, done - 1, Acquire, Relaxed).is_err() {
            return false;
        }
        let Packed([first, second]) = Packed::new(cpu, event);
        for (word, value) in words.iter().zip([time, first, second]) {
            // Release: a reader that sees the value sees the odd sequence, and discards it.
            word.store(value, Release);
        }
        sequence.store(done, Release);
        true
    }

    /// Events recorded so far, lost ones included.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.words.get(HEAD).map_or(0, |head| head.load(Acquire))
    }

    /// Reads from the oldest event that is still there. Readers do not change the ring: each
    /// sees every event.
    #[must_use]
    pub fn reader(&self) -> Reader<'_, W> {
        Reader { ring: Ring { words: self.words, capacity: self.capacity }, next: 0, lost: 0 }
    }

    fn cell(&self, ticket: u64) -> Option<&[W; CELL_WORDS]> {
        let cell = ticket & self.capacity.wrapping_sub(1);
        let at = CELLS + cell as usize * CELL_WORDS;
        self.words.get(at..at + CELL_WORDS)?.try_into().ok()
    }
}

impl<W> fmt::Debug for Ring<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// The sequence of a cell that has the event of `ticket`; one less while it is written.
const fn done(ticket: u64) -> u64 {
    2 * ticket + 2
}

/// Whether a writer is in the cell at this moment.
const fn is_written(sequence: u64) -> bool {
    sequence & 1 == 1
}

/// An event with time and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The host's time.
    pub time: u64,
    /// The CPU that recorded it.
    pub cpu: CpuId,
    /// What happened.
    pub event: Event,
}

/// Reads a ring from the oldest event on.
pub struct Reader<'a, W> {
    ring: Ring<'a, W>,
    /// The ticket that is read next.
    next: u64,
    lost: u64,
}

impl<W: AtomicWord> Reader<'_, W> {
    /// The next event. `None`: there is none, or it is not finished yet; see
    /// [`skip`](Self::skip). Steps over lost ones. Bounded by the capacity of the ring, unless
    /// writers keep overtaking it.
    pub fn read(&mut self) -> Option<Record> {
        loop {
            let behind = self.ring.recorded().checked_sub(self.next)?;
            let overwritten = behind.saturating_sub(self.ring.capacity);
            self.lost += overwritten;
            self.next += overwritten;
            if behind == overwritten {
                return None;
            }
            let [sequence, words @ ..] = self.ring.cell(self.next)?;
            let wanted = done(self.next);
            // Acquire: what the writer of this sequence wrote.
            let before = sequence.load(Acquire);
            let older = before < wanted - 1;
            if before == wanted - 1 || (older && !is_written(before)) {
                return None;
            }
            let [time, first, second] = words.each_ref().map(|word| word.load(Acquire));
            let same = before == wanted && sequence.load(Relaxed) == wanted;
            self.next += 1;
            let event = if same { Packed([first, second]).unpack() } else { None };
            match event {
                Some((cpu, event)) => return Some(Record { time, cpu, event }),
                // Overwritten, or its writer found an older one in the cell and dropped it.
                None => self.lost += 1,
            }
        }
    }

    /// Gives up on the next event, which counts as lost. For when no CPU writes any more, and in
    /// case that one writer takes too long: [`read`](Self::read) waits for it in vain if it was
    /// dropped. `false`: there is none.
    pub fn skip(&mut self) -> bool {
        let some = self.next < self.ring.recorded();
        self.next += u64::from(some);
        self.lost += u64::from(some);
        some
    }

    /// Events that were recorded and that [`read`](Self::read) did not, and will not, return.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl<W> fmt::Debug for Reader<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Reader");
        shown.field("next", &self.next).field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Where [`ToRing`] records: a host's statics.
pub trait Sink: Send + Sync + 'static {
    /// What the ring is made of.
    type Word: AtomicWord + 'static;
    /// The ring to record to now; `None` if there is none (yet). On the fast path of every
    /// allocation and free.
    fn ring() -> Option<&'static Ring<'static, Self::Word>>;
    /// The time, in whatever unit the reader expects.
    fn now() -> u64;
    /// The CPU, for the reader.
    fn cpu() -> CpuId;

    /// Whether the ring records events of that kind. The default asks it: a load, a test and a branch. A host whose words are
    /// a static may look at them by one instruction and a branch, as `zonal_runs::test_static!` does on x86-64: at the
    /// [byte](ENABLED_BYTE) for kinds below eight, of which each has the bit of its index.
    #[must_use]
    #[inline(always)]
    fn is_on(point: Point) -> bool {
        Self::ring().is_some_and(|ring| ring.is_on(point))
    }
}

/// Records to the ring that `K` names. Where that is a static, an event that is not enabled costs
/// one load and one test.
pub struct ToRing<K>(PhantomData<fn() -> K>);

impl<K: Sink> Trace for ToRing<K> {
    #[inline(always)]
    fn is_on(point: Point) -> bool {
        K::is_on(point)
    }

    fn record(event: &Event) {
        if let Some(ring) = K::ring() {
            // Readers count what is dropped.
            let _kept = ring.record(K::now(), K::cpu(), event);
        }
    }
}

impl<K> fmt::Debug for ToRing<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToRing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;
    use zonal::{Order, Pfn};

    fn free(n: u64) -> Event {
        Event::Free { pfn: Pfn::new(n), order: Order::ZERO }
    }

    fn words<const N: usize>() -> [AtomicU64; N] {
        [const { AtomicU64::new(0) }; N]
    }

    #[test]
    fn the_oldest_are_overwritten_and_counted() {
        let words = words::<{ words_for(4) }>();
        let ring = Ring::new(&words);
        assert_eq!(ring.capacity(), 4);
        let mut reader = ring.reader();
        for n in 0..10 {
            assert!(ring.record(n, CpuId(1), &free(n)));
        }
        let got: [_; 4] = core::array::from_fn(|_| reader.read().map(|record| record.time));
        assert_eq!(got, [Some(6), Some(7), Some(8), Some(9)]);
        assert_eq!((reader.read(), reader.lost(), reader.skip()), (None, 6, false));
        assert!(ring.record(10, CpuId(1), &free(10)));
        let record = Record { time: 10, cpu: CpuId(1), event: free(10) };
        assert_eq!((reader.read(), reader.lost()), (Some(record), 6));
    }

    #[test]
    fn a_writer_that_was_overtaken_costs_one_event_and_no_wait() {
        let words = words::<{ words_for(2) }>();
        let ring = Ring::new(&words);
        // Ticket 0 is taken, its cell half written, and its writer interrupted.
        words[HEAD].store(1, Relaxed);
        words[CELLS].store(done(0) - 1, Relaxed);
        assert!(ring.record(1, CpuId(0), &free(1)));
        assert!(!ring.record(2, CpuId(0), &free(2)), "the cell is still being written");
        assert!(ring.record(3, CpuId(0), &free(3)));
        let mut reader = ring.reader();
        let got: [_; 2] = core::array::from_fn(|_| reader.read().map(|record| record.time));
        assert_eq!(got, [Some(3), None], "tickets 0 and 1 are overwritten, 2 was dropped");
        assert_eq!((reader.lost(), ring.recorded()), (3, 4));
    }

    #[test]
    fn what_is_not_finished_is_waited_for_until_it_is_skipped() {
        let words = words::<{ words_for(4) }>();
        let ring = Ring::new(&words);
        // Ticket 0 is taken and nothing written.
        words[HEAD].store(1, Relaxed);
        assert!(ring.record(1, CpuId(0), &free(1)));
        let mut reader = ring.reader();
        assert_eq!(reader.read(), None);
        assert!(reader.skip());
        assert_eq!(reader.read().map(|record| record.time), Some(1));
        assert_eq!(reader.lost(), 1);
    }

    #[test]
    fn memory_for_nothing_loses_everything() {
        for count in [0, 1, CELLS, CELLS + CELL_WORDS - 1] {
            let words = words::<{ words_for(1) }>();
            let ring = Ring::new(&words[..count]);
            ring.enable(&[Point::Free]);
            assert!(!ring.record(0, CpuId(0), &free(0)));
            let mut reader = ring.reader();
            assert_eq!((ring.capacity(), reader.read()), (0, None));
            assert_eq!(reader.lost(), ring.recorded());
        }
    }

    #[test]
    fn only_what_is_enabled_is_on() {
        let words = words::<{ words_for(1) }>();
        let ring = Ring::new(&words);
        assert!(Point::ALL.iter().all(|&point| !ring.is_on(point)));
        ring.enable(&[Point::Free, Point::AllocExtfrag]);
        let on = Point::ALL.map(|point| ring.is_on(point));
        assert_eq!(on, [false, true, false, false, true, false, false, false, false, false]);
    }
}
