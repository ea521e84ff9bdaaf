//! Seeded choices, the same on every machine and in every version.
//!
//! SplitMix64 (Steele, Lea and Flood, 2014): 64 bits of state, and good enough to shuffle with.
//! A library generator would be free to change its sequence with its version, and with it what
//! a `--seed` means.
//!
//! ```
//! use zonal_bench::rng::Rng;
//!
//! let order = Rng::new(1).permutation(8);
//! assert_eq!(order, Rng::new(1).permutation(8));
//! ```

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias is below `bound` in 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// The numbers below `count` in a random order.
    ///
    /// # Panics
    ///
    /// If `count` is over 2^32.
    #[must_use]
    pub fn permutation(&mut self, count: usize) -> Vec<u32> {
        let count = u32::try_from(count).expect("more than 2^32 blocks cannot be shuffled");
        let mut order: Vec<u32> = (0..count).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        // First outputs for seed 0, as its authors publish them.
        let mut rng = Rng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_permutation_has_every_number_once_and_is_shuffled() {
        let order = Rng::new(7).permutation(1000);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..1000));
        assert_ne!(order, sorted);
        assert!(Rng::new(7).permutation(0).is_empty());
    }
}
