//! Whether events are recorded. With [`Off`] an event's arguments are not even computed, and no
//! instruction is left of it (I-8).
//!
//! - Source: Gorman 2014, patch 2 (arguments in the probe, not before it); the events and their
//!   text are those of Linux's `kmem`, `pagemap` and `vmscan` tracepoints.
//! - Mechanism: the places where something happens name the [`Point`] and say how its [`Event`]
//!   is made; [`Trace::emit`] asks the policy whether anyone listens before it is made.
//! - State: the policy's own; a trace policy is a type without a value, so what it writes to is
//!   named by the type (see `ToRing` in the crate `zonal-trace`, which has rings and text).
//! - May import `types` and `platform`.
//! - Conflicts: none. [`preset::Traced`](crate::preset::Traced) gives any preset a trace policy.
//! - Order: a free is emitted before anyone else can have the frame and an allocation after it
//!   was taken, so that in a trace sorted by time no frame is handed out twice.
//! - Tests: here, `trace.rs`, `loom_trace_ring.rs` (and a canary that does not check sequences).
//!
//! ```
//! use zonal::policy::trace::{Off, Point, Trace};
//! Off::emit(Point::Alloc, || unreachable!("never computed"));
//! assert_eq!(Point::Alloc.name(), "mm_page_alloc");
//! ```

mod event;
mod gfp;
mod unwind;

pub use event::{Event, Lru, PageFlags, Point, ReclaimFlags};
pub use gfp::Gfp;
pub(crate) use unwind::or_undo;

/// A trace policy.
pub trait Trace: Send + Sync + 'static {
    /// Whether an event of that kind would be recorded now. May err towards `true`.
    fn is_on(point: Point) -> bool;

    /// Records an event. Called on the path of the allocation or free, possibly from an interrupt
    /// handler and with a CPU's slot or the zone lock held: it may neither wait nor call the
    /// allocator, and takes a bounded number of steps. If it panics, the call ends there and no frame
    /// is lost (I-3): what was to be allocated is free again, and what was to be freed is allocated
    /// still.
    fn record(event: &Event);

    /// Records what `event` computes, if events of that kind are recorded. `event` makes an event
    /// of the kind `point`.
    #[inline(always)]
    fn emit(point: Point, event: impl FnOnce() -> Event) {
        if Self::is_on(point) {
            record_cold::<Self>(event);
        }
    }
}

/// Out of line, so that a traced fast path grows by a test and a call only.
#[cold]
#[inline(never)]
fn record_cold<T: Trace + ?Sized>(event: impl FnOnce() -> Event) {
    T::record(&event());
}

/// Nothing is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Off;

impl Trace for Off {
    #[inline(always)]
    fn is_on(_: Point) -> bool {
        false
    }
    #[inline(always)]
    fn record(_: &Event) {}
    #[inline(always)]
    fn emit(_: Point, _: impl FnOnce() -> Event) {}
}
