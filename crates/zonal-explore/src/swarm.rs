//! What a seed decides: which of everything a run has. A run that leaves most things out finds
//! what a run with all of them hides.

use crate::host::Manners;
use fastrand::Rng;
use zonal_testkit::shape::Shape;

/// What a virtual CPU may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Alloc,
    Free,
    /// Leaves a block for the CPU that collects it.
    Post,
    /// Frees a block that another CPU has left.
    Collect,
    AllocBulk,
    FreeBulk,
    DrainCpu,
    DrainAll,
    Compact,
    CompactBehind,
    Contiguous,
    Range,
    Isolate,
    /// Frees with another order, or a frame inside of a block.
    FreeWrongly,
    /// Sets a zone's watermarks or boosts them.
    Marks,
    /// Disables clusters in a zone for some commands.
    ClustersOff,
    /// Claims the caches of a CPU, or gives them up.
    Own,
}

impl Act {
    pub(crate) const ALL: [Self; 17] = [
        Self::Alloc,
        Self::Free,
        Self::Post,
        Self::Collect,
        Self::AllocBulk,
        Self::FreeBulk,
        Self::DrainCpu,
        Self::DrainAll,
        Self::Compact,
        Self::CompactBehind,
        Self::Contiguous,
        Self::Range,
        Self::Isolate,
        Self::FreeWrongly,
        Self::Marks,
        Self::ClustersOff,
        Self::Own,
    ];

    /// Those that take long, or that end what is interesting, are rare.
    const fn most(self) -> u32 {
        match self {
            Self::Alloc | Self::Free => 64,
            Self::Post | Self::Collect | Self::AllocBulk | Self::FreeBulk => 16,
            Self::DrainCpu | Self::FreeWrongly | Self::Own => 8,
            Self::DrainAll | Self::Compact | Self::Contiguous | Self::Range | Self::Isolate => 4,
            Self::CompactBehind | Self::Marks | Self::ClustersOff => 2,
        }
    }
}

/// Presets that are explored; `run_swarm` has the types.
pub(crate) const PRESETS: [&str; 16] = [
    "Linux416",
    "SkipMerge",
    "Cluster",
    "ClusterFree",
    "SplitZones",
    "SplitZonesByCpu",
    "Zonal",
    "TinyZonal",
    "TinySplit",
    "Linux316",
    "LessDirty",
    "TinyZonal on SimSlot",
    "FairZone",
    "Linux413",
    "FairZonePosted",
    "Linux63",
];

/// Those from here on came later. They are drawn after everything else, so that the seeds kept
/// from before mean what they did.
const LATER: usize = 12;

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) seed: u64,
    /// The test that runs it.
    pub(crate) test: &'static str,
    /// An index into [`PRESETS`].
    pub(crate) preset: usize,
    /// Whether that was asked for, not drawn.
    pub(crate) is_named: bool,
    pub(crate) shape: Shape,
    /// Virtual CPUs.
    pub(crate) cpus: u32,
    /// CPUs with caches: fewer, and some share.
    pub(crate) caches: u32,
    /// Frames of a batch, if not what the zones' sizes give.
    pub(crate) batch: Option<u32>,
    /// Between rounds all have returned, and everything is checked.
    pub(crate) rounds: u32,
    /// Commands of each CPU in a round.
    pub(crate) commands: u32,
    /// Others go on between two commands with this probability in 8.
    pub(crate) rests_in_8: u32,
    pub(crate) switch_in_1024: u32,
    pub(crate) slow: Option<u32>,
    pub(crate) manners: Manners,
    /// Orders asked for; often 0.
    pub(crate) orders: Vec<u8>,
    /// Numbers of the migrate types asked for.
    pub(crate) types: Vec<usize>,
    /// Bits of `Ask::flags` that may be set, and how seldom: one request in `plain_in`; 0 is never.
    /// Others ask for any zone of any node.
    pub(crate) flags: u8,
    pub(crate) plain_in: u32,
    /// How much of memory is taken before the first round, and how much the CPUs want, percent.
    pub(crate) filled: u64,
    pub(crate) wanted: u64,
    /// How often each of [`Act::ALL`] is done, relative to the others.
    pub(crate) weights: [u32; Act::ALL.len()],
}

fn one_of<T: Copy>(dice: &mut Rng, from: &[T]) -> T {
    from[dice.usize(..from.len())]
}

/// Some of them, at least one.
fn some_of<T: Copy>(dice: &mut Rng, from: &[T]) -> Vec<T> {
    let mut some: Vec<T> = from.iter().copied().filter(|_| dice.bool()).collect();
    if some.is_empty() {
        some.push(one_of(dice, from));
    }
    some
}

impl Swarm {
    /// A run in which a single frame may be refused only if none is free: whichever it is, it
    /// would do, and no CPU sets frames apart or holds some of its own.
    pub(crate) fn single_frames(seed: u64) -> Self {
        let any = Self::new(seed);
        let shapes = [Shape::Scrap, Shape::Flat, Shape::Holes, Shape::TwoNodes, Shape::Blocks3];
        let weights = Act::ALL.map(|act| match act {
            Act::Marks | Act::Isolate | Act::Range | Act::Contiguous => 0,
            _ => any.weights[act as usize],
        });
        Self {
            test: "single_frames",
            shape: shapes[(seed % 5) as usize],
            manners: Manners { moves: false, ..any.manners },
            orders: vec![0],
            types: vec![1],
            flags: 0,
            plain_in: 0,
            filled: 90,
            wanted: 130,
            weights,
            ..any
        }
    }

    /// All drawn from the seed.
    pub(crate) fn new(seed: u64) -> Self {
        let dice = &mut Rng::with_seed(seed);
        let preset = dice.usize(..LATER);
        let small = dice.u32(..8) > 0;
        let shape = one_of(dice, if small { &Shape::SMALL[..] } else { &Shape::ALL[..] });
        let cpus = dice.u32(2..=6);
        let caches = if dice.bool() { cpus } else { dice.u32(1..=cpus) };
        let weights = Act::ALL.map(|act| match act {
            Act::Alloc | Act::Free => dice.u32(8..=act.most()),
            _ if dice.bool() => 0,
            _ => dice.u32(1..=act.most()),
        });
        let manners =
            Manners { moves: dice.bool(), reclaims: dice.bool(), wanders: dice.u32(..4) == 0 };
        let mut swarm = Self {
            seed,
            test: "seeds",
            preset,
            is_named: false,
            shape,
            cpus,
            caches,
            batch: dice.bool().then(|| dice.u32(1..=12)),
            rounds: dice.u32(1..=4),
            commands: dice.u32(8..=64),
            rests_in_8: dice.u32(..=8),
            switch_in_1024: 1 << dice.u32(1..=9),
            slow: (dice.u32(..3) == 0).then(|| dice.u32(..cpus)),
            manners,
            orders: some_of(dice, &[0, 0, 0, 1, 2, 3, 5, 9, 10]),
            types: some_of(dice, &[0, 1, 2]),
            flags: dice.u8(..) & 0x3f,
            plain_in: dice.u32(2..=8),
            filled: one_of(dice, &[0, 30, 60, 90, 100]),
            wanted: one_of(dice, &[20, 50, 90, 130]),
            weights,
        };
        let drawn = dice.usize(..PRESETS.len());
        if drawn >= LATER {
            swarm.preset = drawn;
        }
        swarm
    }

    /// The same on a preset that is asked for.
    ///
    /// # Panics
    /// If there is no such preset.
    pub(crate) fn on(self, name: &str) -> Self {
        let preset = PRESETS.iter().position(|known| *known == name);
        let preset = preset.unwrap_or_else(|| panic!("{name} is none of {PRESETS:?}"));
        Self { preset, is_named: true, ..self }
    }

    /// What asks for its preset, on a command line.
    pub(crate) fn named(&self) -> String {
        let name = PRESETS[self.preset];
        if self.is_named { format!("ZONAL_EXPLORE_PRESET='{name}' ") } else { String::new() }
    }
}
