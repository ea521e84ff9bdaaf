//! What is drawn: orders, migrate types, sizes of batches, lifetimes; and what lives until when.
//!
//! ```
//! use zonal_bench::aging::{Mix, life::{Lives, Living}};
//! let mut lives = Lives::new(Mix::Frames, 1);
//! assert_eq!(lives.batch(1 << 18), 1, "single blocks");
//! assert_eq!(Lives::new(Mix::Batches, 1).batch(16), 1, "a twentieth is less than a frame");
//! let mut living = Living::default();
//! living.add(vec![("late", 0)], lives.length(0) + 1_000_000);
//! living.add(vec![("early", 0)], 64);
//! assert_eq!(living.die(), Some(vec![("early", 0)]));
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zonal::MigrateType::{self, Movable, Reclaimable, Unmovable};
use zonal::Order;

use super::Mix;
use crate::rng::Rng;

/// The shape of sizes and lifetimes.
const SHAPE: f64 = 1.1;
/// The shortest life, in allocations.
const SHORTEST: f64 = 64.0;
/// The smallest batch, in frames.
const SMALLEST: f64 = 16.0;
/// Orders with their shares.
const FEW: [(u8, f64); 5] = [(0, 0.80), (1, 0.05), (2, 0.05), (3, 0.05), (9, 0.05)];

/// Draws for a mix.
#[derive(Debug)]
pub struct Lives {
    mix: Mix,
    rng: Rng,
    /// How often each order is asked for.
    weights: Vec<(u8, f64)>,
}

impl Lives {
    /// The draws of a seed.
    #[must_use]
    pub fn new(mix: Mix, seed: u64) -> Self {
        let mut weights = match mix {
            Mix::Orders => (0..=Order::HUGE.get()).map(|order| (order, 1.0)).collect(),
            _ => FEW.to_vec(),
        };
        if mix != Mix::Requests {
            for (order, weight) in &mut weights {
                *weight /= f64::from(1 << *order);
            }
        }
        Self { mix, rng: Rng::new(seed), weights }
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound)
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.rng.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    fn pareto(&mut self, least: f64) -> f64 {
        least * self.unit().powf(-1.0 / SHAPE)
    }

    /// The frames of the next entry, of `frames` in all: one at least.
    pub fn batch(&mut self, frames: u64) -> u64 {
        match self.mix {
            Mix::Frames | Mix::Requests | Mix::Orders => 1,
            Mix::Batches | Mix::Types => {
                (self.pareto(SMALLEST).min(frames as f64 / 20.0) as u64).max(1)
            }
        }
    }

    /// How many allocations an entry outlives, beside as many that live.
    pub fn length(&mut self, living: usize) -> u64 {
        match self.mix {
            // As long as all that lives is replaced in, in the mean: which of them dies next does not depend on its age.
            Mix::Orders => (-self.unit().ln() * living as f64) as u64,
            _ => self.pareto(SHORTEST).min(1e15) as u64,
        }
    }

    /// Order and migrate type of a request.
    pub fn request(&mut self) -> (u8, MigrateType) {
        let order = self.order();
        let movable = self.mix != Mix::Types
            || order == Order::HUGE.get()
            || (order == 0 && self.rng.below(4) != 0);
        let other = [Unmovable, Reclaimable][self.rng.below(2)];
        (order, if movable { Movable } else { other })
    }

    fn order(&mut self) -> u8 {
        let mut place = self.unit() * self.weights.iter().map(|&(_, weight)| weight).sum::<f64>();
        let found = self.weights.iter().find(|&&(_, weight)| {
            place -= weight;
            place <= 0.0
        });
        found.or(self.weights.last()).map_or(0, |&(order, _)| order)
    }
}

/// Blocks with their orders, which die at once.
type Blocks<B> = Vec<(B, u8)>;

/// What lives.
#[derive(Debug)]
pub struct Living<B> {
    dying: BinaryHeap<Reverse<(u64, usize)>>,
    entries: Vec<Blocks<B>>,
    vacant: Vec<usize>,
}

impl<B> Default for Living<B> {
    fn default() -> Self {
        Self { dying: BinaryHeap::new(), entries: Vec::new(), vacant: Vec::new() }
    }
}

impl<B> Living<B> {
    /// What dies first.
    pub fn die(&mut self) -> Option<Blocks<B>> {
        let Reverse((_, at)) = self.dying.pop()?;
        self.vacant.push(at);
        Some(std::mem::take(&mut self.entries[at]))
    }

    /// Entries that live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dying.len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dying.is_empty()
    }

    /// Blocks that die at `dies`.
    pub fn add(&mut self, blocks: Blocks<B>, dies: u64) {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Vec::new());
            self.entries.len() - 1
        });
        self.entries[at] = blocks;
        self.dying.push(Reverse((dies, at)));
    }
}
