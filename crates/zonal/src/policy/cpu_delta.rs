//! Counts that every CPU keeps its own difference of, so that the count that all share is
//! written once in a while: what Linux calls vmstat, with its threshold. A difference is guarded by the
//! CPU's slot.

use crate::boot::tuning::Tuning;

/// Frames in 128 MiB, the unit of memory in the threshold.
const UNIT: u64 = (128 << 20) >> crate::types::units::FRAME_SHIFT;
/// No CPU is further from the shared count than this.
const MOST: u32 = 125;

/// How far a CPU may be from the shared count of a zone: more with more CPUs and memory.
pub(crate) fn threshold(tuning: Tuning) -> i32 {
    let bits = |n: u64| u64::BITS - n.leading_zeros();
    let cpus = bits(u64::from(tuning.cpus));
    (2 * cpus * (1 + bits(tuning.managed / UNIT))).min(MOST) as i32
}

/// One CPU's difference from one shared count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuDelta(i32);

impl CpuDelta {
    /// Adds; returns what is to be added to the shared count now, often nothing.
    #[inline(always)]
    pub(crate) const fn add(&mut self, change: i32, threshold: i32) -> Option<i64> {
        // A change may be any.
        let whole = self.0 as i64 + change as i64;
        if whole > threshold as i64 || whole < -(threshold as i64) {
            self.0 = 0;
            return Some(whole);
        }
        self.0 = whole as i32;
        None
    }

    /// No difference.
    pub(crate) const ZERO: Self = Self(0);

    /// The difference.
    #[cfg(test)]
    pub(crate) const fn get(self) -> i32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_by_hand() {
        let of = |cpus, managed| {
            threshold(Tuning {
                managed,
                cpus,
                cpus_of_node: cpus,
                low: 0,
                pcp_batch: None,
                pcp_high: None,
                regions: None,
                pageblock_order: crate::types::units::Order::HUGE,
            })
        };
        // 2 * fls(cpus) * (1 + fls(memory / 128 MiB)), at most 125.
        assert_eq!(of(1, 0), 2);
        assert_eq!(of(1, 1 << 18), 2 * (1 + 4), "1 GiB: 8 units");
        assert_eq!(of(8, 1 << 20), 8 * (1 + 6), "4 GiB: 32 units");
        assert_eq!(of(112, 1 << 26), 125);
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        let (mut delta, mut shared) = (CpuDelta::ZERO, 0);
        for (n, change) in (0..1000).map(|n| (n, if n % 3 == 0 { -2 } else { 3 })) {
            shared += delta.add(change, 10).unwrap_or(0);
            assert!(delta.get().abs() <= 10);
            let all = (0..=n).map(|n| if n % 3 == 0 { -2 } else { 3 }).sum::<i64>();
            assert_eq!(shared + i64::from(delta.get()), all);
        }
        assert!(shared != 0);
    }

    #[test]
    fn any_change_is_counted() {
        for (first, change) in [(1, i32::MAX), (-1, i32::MIN)] {
            let mut delta = CpuDelta::ZERO;
            assert_eq!(delta.add(first, 10), None);
            assert_eq!(delta.add(change, 10), Some(i64::from(change) + i64::from(first)));
            assert_eq!(delta.get(), 0);
        }
    }
}
