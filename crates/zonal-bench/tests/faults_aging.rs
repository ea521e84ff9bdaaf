//! Allocation refused inside ageing and the tails, over the default preset: at many indexes, once and from
//! there on. All that was handed out has come back, and no thread panics.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use zonal::MigrateType;
use zonal::preset::Zonal;
use zonal_bench::aging::{self, Mix};
use zonal_bench::subject::{FrameThread, FreeBlocks, Profile, Setup, Subject, SubjectError};
use zonal_bench::subjects::zonal::{Owned, Preset};
use zonal_bench::tails;

const MEMORY: usize = 32 << 20;

type Inner = Preset<Zonal, Owned>;

/// The request that is refused, or all from there on; and what was handed out.
#[derive(Default)]
struct Fault {
    at: u64,
    onwards: bool,
    asked: AtomicU64,
    held: AtomicI64,
}

impl Fault {
    fn refuses(&self) -> bool {
        let asked = self.asked.fetch_add(1, Relaxed);
        asked == self.at || (self.onwards && asked > self.at)
    }
}

thread_local! {
    /// What is opened next by this thread.
    static NEXT: RefCell<Option<Arc<Fault>>> = const { RefCell::new(None) };
}

struct Refusing(Inner, Arc<Fault>);

struct RefusingThread<'a>(<Inner as Subject>::Thread<'a>, &'a Fault);

impl Subject for Refusing {
    const PROFILE: Profile = Inner::PROFILE;
    type Block = <Inner as Subject>::Block;
    type Thread<'a> = RefusingThread<'a>;

    fn open(setup: &Setup) -> Result<Self, SubjectError> {
        let next = NEXT.with_borrow_mut(Option::take);
        let fault = next.ok_or_else(|| SubjectError::Init("nothing to open".to_owned()))?;
        Ok(Self(Inner::open(setup)?, fault))
    }
    fn thread(&self, index: usize) -> Result<RefusingThread<'_>, SubjectError> {
        Ok(RefusingThread(self.0.thread(index)?, &self.1))
    }
    fn frames(&self) -> Option<usize> {
        self.0.frames()
    }
    fn free_blocks(&self) -> Option<FreeBlocks> {
        self.0.free_blocks()
    }
}

impl FrameThread for RefusingThread<'_> {
    type Block = <Inner as Subject>::Block;

    fn alloc(&mut self, order: u8) -> Option<Self::Block> {
        self.alloc_as(order, MigrateType::Movable)
    }
    fn alloc_as(&mut self, order: u8, migrate: MigrateType) -> Option<Self::Block> {
        let block = if self.1.refuses() { None } else { self.0.alloc_as(order, migrate) };
        block.inspect(|_| {
            self.1.held.fetch_add(1 << order, Relaxed);
        })
    }
    fn frame(&self, block: Self::Block) -> Option<u64> {
        self.0.frame(block)
    }
    unsafe fn free(&mut self, block: Self::Block, order: u8) {
        self.1.held.fetch_sub(1 << order, Relaxed);
        // SAFETY: the same contract.
        unsafe { self.0.free(block, order) };
    }
    unsafe fn touch(&mut self, block: Self::Block) {
        // SAFETY: the same contract.
        unsafe { self.0.touch(block) };
    }
}

/// `run` with each of many requests refused, once and from there on.
fn refuse_everywhere<R>(name: &str, run: impl Fn() -> Result<R, SubjectError>) {
    let with = |at, onwards| {
        let fault = Arc::new(Fault { at, onwards, ..Fault::default() });
        NEXT.set(Some(fault.clone()));
        let done = run();
        assert!(done.is_ok(), "{name}: request {at} ({onwards}): {:?}", done.err());
        let held = fault.held.load(Relaxed);
        assert_eq!(held, 0, "{name}: request {at} ({onwards}): {held} frames are lost");
        fault.asked.load(Relaxed)
    };
    let asked = with(u64::MAX, false);
    println!("{name}: {asked} requests");
    assert!(asked > 100, "{name}: {asked} requests");
    let between = (0..30).map(|at| asked / 30 * at + 7 * at % 31);
    for at in (0..8).chain(between).chain(asked - 8..asked) {
        with(at, false);
        with(at, true);
    }
}

#[test]
fn nothing_is_lost_by_ageing() {
    for mix in Mix::ALL {
        let spec = aging::Spec {
            mix,
            fill: 85,
            cpus: 2,
            memory: MEMORY,
            seed: 1,
            rounds: 2,
            regions: None,
        };
        refuse_everywhere(&mix.to_string(), || aging::run::<Refusing>(&spec));
    }
}

#[test]
fn nothing_is_lost_by_the_tails() {
    let spec = tails::Spec { fill: 80, threads: 1, memory: MEMORY, seed: 1, calls: 1000 };
    refuse_everywhere("tails", || tails::run::<Refusing>(&spec));
}

#[test]
#[should_panic(expected = "1 frames are lost")]
fn canary_a_frame_that_is_kept_is_counted() {
    refuse_everywhere("kept", || {
        let setup = Setup { memory: MEMORY, threads: 1, touch: false, regions: None };
        let subject = Refusing::open(&setup)?;
        let kept = subject.thread(0)?.alloc(0);
        assert!(kept.is_some());
        Ok(())
    });
}
