//! What the allocator does, told to a ring, where the kernel is built with the feature `trace`.

use super::cpu;
use crate::say;
use core::sync::atomic::AtomicU64;
use zonal::CpuId;
use zonal::policy::trace::Point;
use zonal_runs::test_static;
use zonal_trace::ring::{ENABLED_BYTE, Ring, Sink, words_for};
use zonal_trace::text::Text;

/// Events that it keeps.
const EVENTS: usize = 4096;

static WORDS: [AtomicU64; words_for(EVENTS)] = [const { AtomicU64::new(0) }; words_for(EVENTS)];
static RING: Ring<'static, AtomicU64> = Ring::new(&WORDS);

/// The kernel, as what the events are recorded for.
pub(crate) struct ToSerial;

impl Sink for ToSerial {
    type Word = AtomicU64;
    fn ring() -> Option<&'static Ring<'static, AtomicU64>> {
        Some(&RING)
    }
    fn now() -> u64 {
        // SAFETY: it reads the processor's clock.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    fn cpu() -> CpuId {
        cpu::number()
    }
    #[inline(always)]
    fn is_on(point: Point) -> bool {
        match point {
            Point::Alloc => test_static!(WORDS, ENABLED_BYTE, 1 << Point::Alloc.index()),
            Point::Free => test_static!(WORDS, ENABLED_BYTE, 1 << Point::Free.index()),
            _ => RING.is_on(point),
        }
    }
}

/// Records all kinds of events from now on, or none.
pub(crate) fn record(on: bool) {
    RING.enable(&Point::ALL[..if on { Point::ALL.len() } else { 0 }]);
}

/// Prints the newest `most` events that are kept.
pub(crate) fn show(most: usize) {
    let mut reader = RING.reader();
    let count = core::iter::from_fn(|| reader.read()).count();
    let mut reader = RING.reader();
    for at in 0..count {
        let Some(record) = reader.read() else { break };
        if at + most >= count {
            let event = record.event;
            say!("{:>14} cpu {}: {}: {}", record.time, record.cpu.0, event.name(), Text(event));
        }
    }
    say!("{count} events kept, {} lost", reader.lost());
}
