//! A zone: what is free, its watermarks, its batch.

use crate::kernel::{Batch, Kernel, Walk};
use crate::machine::{MIN_FREE, MIN_FREE_PART, Machine, RESERVE_RATIO, USED};

/// The zones that page cache may use, from the lowest up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneName {
    /// Below 4 GiB.
    Dma32,
    /// Above.
    Normal,
}

impl ZoneName {
    /// As requests try them.
    pub(crate) const FROM_TOP: [Self; 2] = [Self::Normal, Self::Dma32];
}

/// A zone. All numbers are of pages.
#[derive(Clone, Debug)]
pub struct Zone {
    /// Its name.
    pub name: ZoneName,
    /// What it has.
    pub managed: u64,
    /// What is free.
    pub free: u64,
    /// The watermarks.
    pub min: u64,
    /// See [`min`](Self::min).
    pub low: u64,
    /// See [`min`](Self::min).
    pub high: u64,
    /// How far above the high watermark reclaim goes while another zone needs it.
    pub gap: u64,
    /// What is kept from requests that could have used a higher zone.
    pub reserve: u64,
    /// What a batch is.
    pub batch: u64,
    /// What is left of it; below nothing if requests had to go on.
    pub left: i64,
    /// The batch is used up: the flag of patch 3.
    pub is_depleted: bool,
    /// Dirty pages, and those on their way to the disk.
    pub dirty: u64,
    /// See [`dirty`](Self::dirty).
    pub writeback: u64,
    /// The dirty limit as it was when it was last exceeded (patch 4).
    pub cached_limit: u64,
    /// Pages that requests got.
    pub allocated: u64,
    /// Pages that reclaim looked at.
    pub scanned: u64,
    /// Reclaim found nothing but pages on their way to the disk.
    pub(crate) is_all_writeback: bool,
}

impl Zone {
    /// Whether more is free than a mark, and than is kept from those that could use a higher zone if
    /// the request `could`.
    pub(crate) const fn is_above(&self, mark: u64, could: bool) -> bool {
        self.free > mark + if could { self.reserve } else { 0 }
    }
}

/// The zones of a machine.
pub(super) fn zones(machine: &Machine, kernel: &Kernel) -> [Zone; 2] {
    let dma32 = machine.frames * machine.dma32 / 1000;
    let normal = machine.frames - dma32;
    let used = machine.frames * USED / 1000;
    let zone = |name, managed: u64, used, reserve| {
        let min = MIN_FREE.min(machine.frames / MIN_FREE_PART) * managed / machine.frames;
        let (low, high) = (min + min / 4, min + min / 2);
        let batch = match kernel.walk {
            Walk::Posted | Walk::Fair(Batch::Quarter) | Walk::FairOnePass(Batch::Quarter) => {
                managed / 4
            }
            _ => high - low,
        };
        Zone {
            name,
            managed,
            free: managed - used,
            min,
            low,
            high,
            gap: low.min(managed.div_ceil(100)),
            reserve,
            batch,
            left: batch as i64,
            is_depleted: false,
            dirty: 0,
            writeback: 0,
            cached_limit: 0,
            allocated: 0,
            scanned: 0,
            is_all_writeback: false,
        }
    };
    [
        zone(ZoneName::Dma32, dma32, 0, normal / RESERVE_RATIO),
        zone(ZoneName::Normal, normal, used, 0),
    ]
}
