//! What can be set.

use crate::units::Span;

/// What of CFQ can be set. The default is Linux 3.16's.
///
/// ```
/// use zonal_cfq::cfq::Tunables;
/// use zonal_cfq::units::Span;
///
/// let proposed = Tunables { target_latency: Span::from_millis(600), ..Tunables::default() };
/// assert_eq!(proposed.slice_sync, Span::from_millis(100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// The slice of a sync queue of level 4: 100 ms.
    pub slice_sync: Span,
    /// The slice of an async queue of level 4: 40 ms.
    pub slice_async: Span,
    /// Async requests a slice; a level gets twice as many for each step above 8: 2.
    pub slice_async_requests: u32,
    /// How long to wait for a sync queue's next request: 8 ms. Nothing: never wait.
    pub slice_idle: Span,
    /// How long to wait for the next request of a group: 8 ms.
    pub group_idle: Span,
    /// Within which time every sync queue is to have its turn: 300 ms; the source proposes 600.
    pub target_latency: Span,
    /// Whether slices shrink for it: yes.
    pub low_latency: bool,
    /// How many requests of a queue may be with the device while others wait: 8.
    pub quantum: u32,
    /// When a sync request is overdue: 125 ms.
    pub fifo_expire_sync: Span,
    /// When an async request is overdue: 250 ms.
    pub fifo_expire_async: Span,
    /// How far back a seek may go, in sectors: 32768, or 16 MiB.
    pub back_seek_max: u64,
    /// How many times as far a seek back counts: 2.
    pub back_seek_penalty: u64,
    /// Whether the device has to seek: yes. If it has not, none is waited for once it was seen to
    /// order requests itself; until then [`slice_idle`](Self::slice_idle) holds. That of 3.16 is the
    /// same for both kinds; only 4.2 sets it to nothing for those that do not seek.
    pub rotational: bool,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            slice_sync: Span::from_millis(100),
            slice_async: Span::from_millis(40),
            slice_async_requests: 2,
            slice_idle: Span::from_millis(8),
            group_idle: Span::from_millis(8),
            target_latency: Span::from_millis(300),
            low_latency: true,
            quantum: 8,
            fifo_expire_sync: Span::from_millis(125),
            fifo_expire_async: Span::from_millis(250),
            back_seek_max: 32 * 1024,
            back_seek_penalty: 2,
            rotational: true,
        }
    }
}

/// The shortest turn of a kind of queues.
pub(super) const SHORTEST_TURN: Span = Span::from_millis(2);
/// How far behind the last queue one of class idle is placed.
pub(super) const IDLE_DELAY: Span = Span::from_millis(200);
/// How far before the first queue one that preempts is placed.
pub(super) const FRONT: Span = Span::from_millis(1000);
/// Requests of a queue from which on it counts as deep.
pub(super) const DEEP: usize = 4;
/// A jump of more sectors is a seek.
pub(super) const SEEK: u64 = 8 * 100;
/// Requests that lie no more sectors apart than this are close.
pub(super) const CLOSE: u64 = 8 * 1024;
/// On a device that does not seek, a request of fewer sectors counts as a seek.
pub(super) const SMALL: u32 = 64;
/// Requests with the device from which on it is taken to order them itself.
pub(super) const DEVICE_DEPTH: u32 = 5;
/// Completions over which that is found out.
pub(super) const DEVICE_SAMPLES: u32 = 50;
/// The longest request that does not end the wait for a queue's next one by itself: one page.
pub(super) const ONE_PAGE: u32 = 8;
