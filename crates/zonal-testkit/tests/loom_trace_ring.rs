//! Models of the ring of trace events: writers that overtake each other and a reader.
//!
//! What is read must be whole (time, CPU and event of one record), in the order of the tickets,
//! and nothing may be missing from "read + lost = recorded". A planted bug is a word that breaks a
//! promise under the shipped source; each must be caught.
//!
//! Bound: rings of one and two events; three threads at most; no bound on preemptions except
//! where one is named, and three in a preflight.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test models_of_lists loom_trace_ring -- --nocapture
//! ```

use crate::loom_broken::{NoAcquire, NoRelease};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use zonal::platform::AtomicWord;
use zonal::policy::trace::Event;
use zonal::{CpuId, Order, Pfn};
use zonal_testkit::loom_platform::{Word, alone, bound, explore, spawn};
use zonal_trace::ring::{Reader, Ring, words_for};

/// Numbers of events are far from what sequences and tickets reach in a model.
const FIRST: u64 = 1000;

fn ring<W: AtomicWord + 'static>(events: usize) -> Rc<Ring<'static, W>> {
    // A few words a run are leaked: what they stand for, loom frees.
    let words = (0..words_for(events)).map(|_| W::new(0)).collect::<Vec<_>>().leak();
    Rc::new(Ring::new(words))
}

fn record<W: AtomicWord>(ring: &Ring<'_, W>, n: u64) {
    let event = Event::Free { pfn: Pfn::new(FIRST + n), order: Order::ZERO };
    let _kept = ring.record(FIRST + n, CpuId((FIRST + n) as u32), &event);
}

/// Reads what there is; each record must be whole.
fn read_all<W: AtomicWord>(reader: &mut Reader<'_, W>, seen: &mut Vec<u64>) {
    while let Some(read) = reader.read() {
        let parts = [u64::from(read.cpu.0), read.event.pfn().get()];
        let whole = read.time >= FIRST && parts == [read.time; 2];
        assert!(whole, "a record of two events: {} and {parts:?}", read.time);
        seen.push(read.time - FIRST);
    }
}

/// `writers` threads record two events each while the main thread reads.
fn model<W: AtomicWord + 'static>(events: usize, writers: u64, reads: usize) {
    let ring = ring::<W>(events);
    let write = |writer: u64| {
        let ring = ring.clone();
        spawn(writer as u32 + 1, move || (0..2).for_each(|n| record(&ring, 2 * writer + n)))
    };
    let threads: Vec<_> = (0..writers).map(write).collect();
    let (mut reader, mut seen) = (ring.reader(), Vec::new());
    for _ in 0..reads {
        read_all(&mut reader, &mut seen);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("a writer"));
    alone();
    loop {
        read_all(&mut reader, &mut seen);
        if !reader.skip() {
            break;
        }
    }
    assert_eq!(ring.recorded(), 2 * writers);
    assert_eq!(seen.len() as u64 + reader.lost(), 2 * writers, "some are neither read nor lost");
    for writer in 0..writers {
        let own: Vec<u64> = seen.iter().copied().filter(|n| n / 2 == writer).collect();
        assert!(own.is_sorted_by(|a, b| a < b), "out of order or twice: {own:?}");
    }
    if writers == 1 {
        assert_eq!(seen.last(), Some(&1), "no writer was there to overtake the last one");
    }
}

#[test]
fn a_reader_beside_a_writer_that_goes_round() {
    explore("ring of one, one writer", bound(3, None), || model::<Word>(1, 1, 1));
    explore("ring of two, one writer", bound(3, None), || model::<Word>(2, 1, 1));
}

#[test]
fn writers_that_overtake_each_other() {
    explore("ring of one, two writers", Some(3), || model::<Word>(1, 2, 0));
    explore("ring of one, two writers and a reader", Some(1), || model::<Word>(1, 2, 1));
    explore("ring of two, two writers and a reader", Some(1), || model::<Word>(2, 2, 1));
}

/// A word that changes its calls.
macro_rules! broken {
    ($(#[$doc:meta])* $name:ident, store: $store:expr, new: $new:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        struct $name(Word);
        impl AtomicWord for $name {
            fn new(value: u64) -> Self {
                Self(Word::new(value))
            }
            fn store(&self, value: u64, order: Ordering) {
                self.0.store(value, $store(value, order));
            }
            fn compare_exchange(
                &self,
                current: u64,
                new: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                self.0.compare_exchange(current, $new(current, new), success, failure)
            }
            zonal::forward_atomic!(u64, 0: load fetch_add fetch_or fetch_and swap);
        }
    };
}
broken!(
    /// Planted bug: a cell is not marked while it is written.
    NoMark, store: |_, order| order, new: |current, _| current
);
broken!(
    /// Planted bug: the words of a record are stored without order, as if the sequence alone
    /// were enough.
    PlainWords,
    store: |value, order| if value >= FIRST { Ordering::Relaxed } else { order },
    new: |_, new| new
);

#[test]
#[should_panic(expected = "a record of two events")]
fn canary_cells_that_are_not_marked() {
    explore("no mark", bound(3, None), || model::<NoMark>(1, 1, 1));
}

#[test]
#[should_panic(expected = "a record of two events")]
fn canary_words_without_order() {
    explore("words without order", bound(3, None), || model::<PlainWords>(1, 1, 1));
}

#[test]
#[should_panic(expected = "a record of two events")]
fn canary_a_sequence_that_does_not_release() {
    explore("no release", bound(3, None), || model::<NoRelease>(1, 1, 1));
}

#[test]
#[should_panic(expected = "a record of two events")]
fn canary_a_sequence_that_does_not_acquire() {
    explore("no acquire", bound(3, None), || model::<NoAcquire>(1, 1, 1));
}
