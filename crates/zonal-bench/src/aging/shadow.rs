//! Which frames are allocated, kept beside the allocator: what is free, and in which runs, without
//! asking it.
//!
//! ```
//! use zonal::Order;
//! use zonal_bench::aging::shadow::Shadow;
//! let mut shadow = Shadow::new(1024);
//! shadow.flip(512 + 9, 0);
//! // Of 1023 free frames 512 are in the one pageblock that is left.
//! assert!((shadow.unusable(Order::HUGE) - 511.0 / 1023.0).abs() < 1e-9);
//! assert_eq!(shadow.whole(), (1, 2));
//! ```

use std::collections::HashMap;

use zonal::Order;

/// Frames of a pageblock.
const BLOCK: u64 = 512;
/// Classes of [`by_free`](Shadow::by_free).
pub const CLASSES: usize = 10;

/// A bit a frame that is allocated, of the pageblocks that ever had one.
#[derive(Debug)]
pub struct Shadow {
    frames: u64,
    allocated: u64,
    blocks: HashMap<u64, [u64; 8]>,
}

impl Shadow {
    /// Of `frames` frames, none of which is allocated.
    #[must_use]
    pub fn new(frames: u64) -> Self {
        Self { frames, allocated: 0, blocks: HashMap::new() }
    }

    /// A block was allocated, or freed.
    pub fn flip(&mut self, frame: u64, order: u8) {
        let block = self.blocks.entry(frame / BLOCK).or_default();
        let (first, count) = ((frame % BLOCK) as usize, 1_usize << order);
        let taken = block[first / 64] >> (first % 64) & 1 == 1;
        self.allocated = self.allocated.wrapping_add_signed([1, -1][usize::from(taken)] << order);
        if count < 64 {
            block[first / 64] ^= ((1 << count) - 1) << (first % 64);
        } else {
            block[first / 64..(first + count) / 64].iter_mut().for_each(|word| *word = !*word);
        }
    }

    /// Pageblocks of which no frame is allocated, of how many.
    #[must_use]
    pub fn whole(&self) -> (usize, usize) {
        let all = (self.frames / BLOCK) as usize;
        let touched = self.blocks.values().filter(|words| words.iter().any(|&word| word != 0));
        (all.saturating_sub(touched.count()), all)
    }

    /// The share of the free frames that no free aligned block of `order` (3 or 9) has.
    #[must_use]
    pub fn unusable(&self, order: Order) -> f64 {
        let runs = if order == Order::HUGE {
            self.whole().0 as u64
        } else {
            let all = self.frames >> order.get();
            let broken = self.blocks.values().flatten().map(|&word| broken_runs(word, order));
            all.saturating_sub(broken.map(u64::from).sum())
        };
        let free = self.frames - self.allocated;
        1.0 - ((runs << order.get()) as f64 / free.max(1) as f64).min(1.0)
    }

    /// How many pageblocks have 0, 1 to 63, ... 448 to 511, 512 frames free.
    #[must_use]
    pub fn by_free(&self) -> [u32; CLASSES] {
        let mut classes = [0; CLASSES];
        for words in self.blocks.values() {
            let free: u32 = words.iter().map(|word| word.count_zeros()).sum();
            let class = match free {
                0 => 0,
                512 => CLASSES - 1,
                some => 1 + some as usize / 64,
            };
            classes[class] += 1;
        }
        let rest = (self.frames / BLOCK).saturating_sub(self.blocks.len() as u64);
        classes[CLASSES - 1] += rest as u32;
        classes
    }
}

/// Aligned runs of `order` (at most 6) in which a bit is set.
fn broken_runs(word: u64, order: Order) -> u32 {
    let size = 1_usize << order.get();
    let run = u64::MAX >> (64 - size);
    (0..64).step_by(size).filter(|at| word >> at & run != 0).count() as u32
}
