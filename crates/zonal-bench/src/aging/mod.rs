//! `zonal bench aging`: how whole free memory stays while blocks come and go for rounds.
//!
//! A round allocates half the memory in frames. What is to die first dies whenever more than `fill`
//! per cent are in use, freed by any CPU; lifetimes are Pareto, shape 1.1, from 64 allocations up
//! ([`life`]). CPUs are threads of the subject, driven in turn by one: what is measured is placement.
//!
//! The index of unusable free memory for an order is the share of the free frames that no free aligned
//! block of that order has: 0 right after boot. It is worked out from what is allocated
//! ([`shadow`]), so that all subjects are measured alike, whatever they keep in caches; presets are
//! asked what they have, too, in which frames in caches are not free.
//!
//! The parameters are no workload to tune to: other seeds, fills, CPUs and sizes are as valid.
//!
//! ```
//! use zonal_bench::aging::{Mix, Spec, run};
//! use zonal_bench::subjects::zonal::{Owned, Preset};
//! use zonal::preset::Zonal;
//!
//! let spec = Spec { mix: Mix::Batches, fill: 85, cpus: 2, memory: 64 << 20, seed: 1, rounds: 2, regions: None };
//! let row = run::<Preset<Zonal, Owned>>(&spec)?;
//! assert!(row.index9 <= 1.0 && row.refused9 == 0);
//! # Ok::<(), zonal_bench::subject::SubjectError>(())
//! ```

pub mod life;
pub mod shadow;

use core::fmt;
use core::num::NonZeroU32;
use std::time::Instant;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use zonal::Order;
use zonal::report::unusable_permille;

use crate::machine::Usage;
use crate::subject::{FrameThread, Setup, Subject, SubjectError};
use life::{Lives, Living};
use shadow::Shadow;

/// What is allocated, and how it dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// Batches of 16 × Pareto(1.1) frames, at most a twentieth of the memory, from one CPU, that die at
    /// once; 80 % of the frames in order 0, 15 % in orders 1 to 3, 5 % in order 9
    Batches,
    /// Batches, where order 9 and three quarters of order 0 are movable, all else is not
    Types,
    /// Single blocks, the same shares of frames
    Frames,
    /// Single blocks, the same shares of requests
    Requests,
    /// Single blocks of orders 0 to 9, each the same share of the frames; which dies next does not depend on its age
    Orders,
}

impl Mix {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Batches, Self::Types, Self::Frames, Self::Requests, Self::Orders];
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Batches => "batches",
            Self::Types => "types",
            Self::Frames => "frames",
            Self::Requests => "requests",
            Self::Orders => "orders",
        })
    }
}

/// One cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// What is allocated.
    pub mix: Mix,
    /// Per cent of the frames in use.
    pub fill: u8,
    /// Threads of the subject.
    pub cpus: usize,
    /// Bytes of frames.
    pub memory: usize,
    /// Of all that is drawn.
    pub seed: u64,
    /// Each allocates half the memory.
    pub rounds: u32,
    /// Regions of a zone, where a preset looks for frames by them and is not to decide.
    #[serde(default)]
    pub regions: Option<NonZeroU32>,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The index for order 9, mean over the rounds.
    pub index9: f64,
    /// The same over the second half of the rounds.
    pub index9_late: f64,
    /// The same for order 3.
    pub index3: f64,
    /// The same for order 3 over the second half.
    pub index3_late: f64,
    /// The index for order 9 as the subject reports its free blocks, if it does.
    pub reported9: Option<f64>,
    /// The same for order 3.
    pub reported3: Option<f64>,
    /// Requests of orders 0 to 10 that were refused.
    pub refused: Vec<u64>,
    /// Of these, order 9.
    pub refused9: u64,
    /// Pageblocks of 512 frames of which none is allocated, at the end.
    pub whole_blocks: usize,
    /// Of how many.
    pub blocks: usize,
    /// Frames in the subject's caches at the end, if it says.
    pub cached: Option<u64>,
    /// The whole run with all that the harness does, in seconds.
    pub seconds: f64,
    /// Whether the thread lost its CPU in that time, which is then no measure; the rest does not depend on
    /// it. None in files from before it was told.
    #[serde(default)]
    pub lost_cpu: Option<bool>,
    /// For each round how many pageblocks have 0, 1 to 63, 64 to 127, ... 448 to 511, 512 frames free.
    pub by_free: Vec<[u32; shadow::CLASSES]>,
}

/// Mean over all rounds, and over the second half.
#[derive(Default)]
struct Means {
    all: f64,
    late: f64,
}

impl Means {
    fn add(&mut self, round: u32, rounds: u32, value: f64) {
        self.all += value / f64::from(rounds);
        let half = rounds / 2;
        if round >= half {
            self.late += value / f64::from(rounds - half);
        }
    }
}

/// The allocator, and what is out of it.
struct World<'a, S: Subject> {
    cpus: Vec<S::Thread<'a>>,
    most: u64,
    living: Living<S::Block>,
    lives: Lives,
    shadow: Shadow,
    used: u64,
    now: u64,
    refused: [u64; 11],
}

/// Ages the subject `S`.
///
/// # Errors
///
/// What keeps it from being opened; [`SubjectError::Init`] if its blocks have no frame numbers or
/// it has no blocks of order 9.
pub fn run<S: Subject>(spec: &Spec) -> Result<Row, SubjectError> {
    let (before, start) = (Usage::now(), Instant::now());
    let subject = S::open(&Setup {
        memory: spec.memory,
        threads: spec.cpus,
        touch: false,
        regions: spec.regions,
    })?;
    let frames = match subject.frames() {
        Some(frames) if S::PROFILE.max_order >= Order::HUGE.get() => frames as u64,
        _ => return Err(SubjectError::Init("has no fixed set of frames, or no order 9".into())),
    };
    let cpus = (0..spec.cpus).map(|cpu| subject.thread(cpu)).collect::<Result<_, _>>()?;
    let mut world: World<'_, S> = World {
        cpus,
        most: frames * u64::from(spec.fill) / 100,
        living: Living::default(),
        lives: Lives::new(spec.mix, spec.seed),
        shadow: Shadow::new(frames),
        used: 0,
        now: 0,
        refused: [0; 11],
    };
    let mut means: [Means; 4] = Default::default();
    let mut by_free = Vec::new();
    let mut says = subject.free_blocks().is_some();
    for round in 0..spec.rounds {
        world.round(frames)?;
        let outside = [world.shadow.unusable(Order::HUGE), world.shadow.unusable(ORDER3)];
        let reported = subject.free_blocks().map(|free| unusable_permille(&free.blocks));
        says &= reported.is_some();
        let own = reported.map_or([0.0; 2], |permille| {
            [Order::HUGE, ORDER3].map(|order| f64::from(permille[order.index()]) / 1000.0)
        });
        let values = outside.into_iter().chain(own);
        means.iter_mut().zip(values).for_each(|(mean, now)| mean.add(round, spec.rounds, now));
        by_free.push(world.shadow.by_free());
    }
    let cached = subject.free_blocks().map(|free| free.cached);
    let (whole_blocks, blocks) = world.shadow.whole();
    let refused = world.refused;
    world.end()?;
    let [nine, three, own9, own3] = means;
    let wall = start.elapsed();
    Ok(Row {
        index9: nine.all,
        index9_late: nine.late,
        index3: three.all,
        index3_late: three.late,
        reported9: says.then_some(own9.all),
        reported3: says.then_some(own3.all),
        refused: refused.to_vec(),
        refused9: refused[Order::HUGE.index()],
        whole_blocks,
        blocks,
        cached,
        seconds: wall.as_secs_f64(),
        lost_cpu: Some(before.lost_cpu(&Usage::now(), wall)),
        by_free,
    })
}

const ORDER3: Order = match Order::new(3) {
    Some(order) => order,
    None => Order::ZERO,
};

impl<S: Subject> World<'_, S> {
    /// Allocates half the memory.
    fn round(&mut self, frames: u64) -> Result<(), SubjectError> {
        let mut allocated = 0;
        while allocated < frames / 2 {
            let size = self.lives.batch(frames);
            allocated += self.live(size)?;
        }
        Ok(())
    }

    /// Allocates one entry of `size` frames at least, and lets die what is in the way.
    fn live(&mut self, size: u64) -> Result<u64, SubjectError> {
        let cpu = self.lives.below(self.cpus.len());
        let (mut blocks, mut taken) = (Vec::new(), 0);
        while taken < size {
            let (order, migrate) = self.lives.request();
            let count = 1 << order;
            while self.used + count > self.most {
                let Some(dead) = self.living.die() else { break };
                self.free(dead)?;
            }
            if let Some(block) = self.cpus[cpu].alloc_as(order, migrate) {
                let frame = self.frame(cpu, block)?;
                self.shadow.flip(frame, order);
                blocks.push((block, order));
                self.used += count;
            } else {
                self.refused[usize::from(order)] += 1;
            }
            taken += count;
            self.now += 1;
        }
        let length = self.lives.length(self.living.len());
        self.living.add(blocks, self.now + length);
        Ok(taken)
    }

    fn frame(&self, cpu: usize, block: S::Block) -> Result<u64, SubjectError> {
        let frame = self.cpus[cpu].frame(block);
        frame.ok_or_else(|| SubjectError::Init("its blocks have no frame numbers".into()))
    }

    fn free(&mut self, dead: Vec<(S::Block, u8)>) -> Result<(), SubjectError> {
        let cpu = self.lives.below(self.cpus.len());
        for (block, order) in dead {
            let frame = self.frame(cpu, block)?;
            self.shadow.flip(frame, order);
            // SAFETY: it came from this subject with this order, and `Living` gives each entry out once.
            unsafe { self.cpus[cpu].free(block, order) };
            self.used -= 1 << order;
        }
        Ok(())
    }

    /// Frees all that lives.
    fn end(mut self) -> Result<(), SubjectError> {
        while let Some(dead) = self.living.die() {
            self.free(dead)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::on_a_crowded_cpu;
    use crate::subjects::zonal::{Owned, Preset};
    use zonal::preset::{Linux416, Zonal};

    fn spec(mix: Mix, seed: u64) -> Spec {
        Spec { mix, fill: 80, cpus: 3, memory: 64 << 20, seed, rounds: 6, regions: None }
    }

    /// The same seed is the same run; all is free in the end, or the next run would differ.
    #[test]
    fn a_run_is_repeatable() {
        for mix in Mix::ALL {
            let one = run::<Preset<Zonal, Owned>>(&spec(mix, 3)).expect("it opens");
            let two = run::<Preset<Zonal, Owned>>(&spec(mix, 3)).expect("it opens");
            let clock = |row: Row| Row { seconds: 0.0, lost_cpu: None, ..row };
            assert_eq!(clock(one), clock(two), "{mix}");
        }
    }

    #[test]
    fn a_lost_cpu_is_told() {
        let lost = |rounds| {
            let spec = Spec { rounds, memory: 16 << 20, ..spec(Mix::Frames, 1) };
            run::<Preset<Zonal, Owned>>(&spec).expect("it opens").lost_cpu
        };
        assert_eq!(on_a_crowded_cpu(|| lost(200)), Some(true));
        assert!((0..200).any(|_| lost(1) == Some(false)), "a short run is left alone");
    }

    /// What the presets report and what is seen from outside agree, but for what is in caches.
    #[test]
    fn both_measures_agree() {
        for seed in 1..4 {
            let row = run::<Preset<Linux416, Owned>>(&spec(Mix::Batches, seed)).expect("it opens");
            let reported = row.reported9.expect("presets report");
            assert!((row.index9 - reported).abs() < 0.1, "{} {reported}", row.index9);
            assert_eq!(row.blocks, 32);
            assert_eq!(row.by_free.len(), 6);
            assert!(row.by_free.iter().all(|round| round.iter().sum::<u32>() == 32));
        }
    }
}
