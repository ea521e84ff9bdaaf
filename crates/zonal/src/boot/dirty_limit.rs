//! How many pages of a zone may be dirty.

use super::watermark::mul_div;
use crate::types::units::FRAME_SIZE;

/// How many pages may be dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirtyLimit {
    /// Per cent of the memory that could be dirty: 1 to 100.
    Percent(u8),
    /// Bytes over all zones, each its share.
    Bytes(u64),
}

impl Default for DirtyLimit {
    /// 20 per cent.
    fn default() -> Self {
        Self::Percent(20)
    }
}

impl DirtyLimit {
    /// The limit of a zone that could have `there` dirty pages, all zones together `all`. A limit
    /// in bytes is rounded up to whole pages.
    #[must_use]
    pub fn pages(self, there: u64, all: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Percent(percent) => mul_div(there, u64::from(percent), 100),
            Self::Bytes(bytes) => {
                let pages = bytes.div_ceil(FRAME_SIZE as u64);
                mul_div(pages, there, all())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_by_hand() {
        assert_eq!(DirtyLimit::default().pages(1001, || unreachable!()), 200);
        assert_eq!(DirtyLimit::Percent(100).pages(7, || unreachable!()), 7);
        // 1 MiB and a byte: 257 pages, of which a zone with a quarter of the memory has 64.
        assert_eq!(DirtyLimit::Bytes((1 << 20) + 1).pages(25, || 100), 64);
        assert_eq!(DirtyLimit::Bytes(4096).pages(0, || 0), 0);
    }
}
