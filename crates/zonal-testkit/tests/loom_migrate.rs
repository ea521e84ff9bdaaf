//! Pages that move while their owner frees them. One CPU compacts; the owner of the page that
//! is moved, on another CPU, frees it, or the page beside it. Who moves a page and who frees it
//! must first win it from the host's table: the host by trying its lock, the owner by taking it
//! out. Modelled on the shipped core, with hosts that break this as canaries.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p zonal-testkit --test loom_migrate -- --nocapture
//! ```
//!
//! All together 25 s on two busy CPUs: 16 or 24 frames, at most 2 or 3 preemptions a run. Every
//! model says in how many runs the page moved, or the owner was first, and fails without either.
#![cfg(loom)]

#[expect(dead_code, reason = "shared by several tests")]
mod loom_world;

use loom_world::{Ledger, MOVABLE, World, spawn_on};
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use zonal::Host;
use zonal::compact::{CompactMode, CompactOutcome};
use zonal::plan::Plan;
use zonal::platform::shared_slot::{Guarded, SharedSlot};
use zonal::platform::{FenceUnsupported, Lock, Platform};
use zonal::policy::Policy;
use zonal::preset::{ClusterFree, Linux416};
use zonal::{Allocator, CpuId, Order, Pfn, ZoneId};
use zonal::{Immovable, Migration};
use zonal_testkit::loom_platform::{
    Byte, Half, LoomLock, LoomPlatform, Newest, batch_plan, explore,
};

/// The page that the model is about is the first of the table.
const PAGE: usize = 0;
const ZONE: ZoneId = ZoneId(0);

/// The host's table: where each page is, and what is in each frame.
struct Table {
    /// `None`: its owner took it out. The lock is the page's lock.
    pages: Vec<LoomLock<Option<Pfn>>>,
    /// By frame, the page in it: changes together with the ledger.
    contents: RefCell<Vec<Option<usize>>>,
    ledger: Rc<Ledger>,
    /// How often a page was there and was moved, or refused.
    answered: Cell<usize>,
}

impl Table {
    /// Copies the page to where it shall be: both frames are the host's for that moment.
    fn copy(&self, page: usize, to: &Migration) {
        self.ledger.took(to.to, Order::ZERO);
        self.ledger.giving(to.from, Order::ZERO);
        let mut contents = self.contents.borrow_mut();
        let there = contents[to.from.get() as usize].take();
        assert_eq!(there, Some(page), "{to:?} moves another owner's page");
        contents[to.to.get() as usize] = there;
        self.answered.set(self.answered.get() + 1);
    }

    /// The owner's way to a page that he is about to free; `None` if he did so before.
    fn take_out(&self, page: usize) -> Option<Pfn> {
        let pfn = self.pages[page].with(Option::take)?;
        let there = self.contents.borrow_mut()[pfn.get() as usize].take();
        assert_eq!(there, Some(page), "the owner frees what he owns");
        Some(pfn)
    }
}

/// What a host does when it is asked to move a page. `free` frees a frame behind the owner's
/// back.
trait Rule: Sized + 'static {
    fn migrate(table: &Table, wanted: &Migration, free: impl Fn(Pfn)) -> Result<(), Immovable>;
}

/// Moves what it can lock.
enum Obeys {}

impl Rule for Obeys {
    fn migrate(table: &Table, wanted: &Migration, _: impl Fn(Pfn)) -> Result<(), Immovable> {
        let moved = table.pages.iter().enumerate().any(|(at, page)| {
            let moved = page.try_with(|place| {
                let here = *place == Some(wanted.from);
                if here {
                    table.copy(at, wanted);
                    *place = Some(wanted.to);
                }
                here
            });
            moved == Some(true)
        });
        if moved { Ok(()) } else { Err(Immovable) }
    }
}

/// Refuses, with the page's lock in hand: its owner is writing to it, say.
enum Refuses {}

impl Rule for Refuses {
    fn migrate(table: &Table, wanted: &Migration, _: impl Fn(Pfn)) -> Result<(), Immovable> {
        let here = table.pages[PAGE].try_with(|place| *place == Some(wanted.from));
        table.answered.set(table.answered.get() + usize::from(here == Some(true)));
        Err(Immovable)
    }
}

/// Planted bug: looks whether the page is there and does not hold on to it, so its owner may
/// free the place from which it is said to have moved.
enum LooksFirst {}

impl Rule for LooksFirst {
    fn migrate(table: &Table, wanted: &Migration, _: impl Fn(Pfn)) -> Result<(), Immovable> {
        let page = &table.pages[PAGE];
        if page.try_with(|place| *place) != Some(Some(wanted.from)) {
            return Err(Immovable);
        }
        page.with(|place| {
            let freed = place.is_none();
            if !freed {
                table.copy(PAGE, wanted);
                *place = Some(wanted.to);
            }
        });
        Ok(())
    }
}

/// Planted bug: refuses, and the page's place is freed all the same.
enum FreesRefused {}

impl Rule for FreesRefused {
    fn migrate(table: &Table, wanted: &Migration, free: impl Fn(Pfn)) -> Result<(), Immovable> {
        let here = table.pages[PAGE].try_with(|place| *place == Some(wanted.from));
        if here == Some(true) {
            free(wanted.from);
        }
        Err(Immovable)
    }
}

/// Planted bug: moves the page and refuses, so that the place it is in now is free as well.
enum MovesAndRefuses {}

impl Rule for MovesAndRefuses {
    fn migrate(table: &Table, wanted: &Migration, free: impl Fn(Pfn)) -> Result<(), Immovable> {
        let _ = Obeys::migrate(table, wanted, free);
        Err(Immovable)
    }
}

thread_local! {
    /// How often a thread waited. All threads of a model are one of the host's.
    static WAITED: Cell<u32> = const { Cell::new(0) };
}

/// Loom's host with a table of pages. Words return what was written last: states and the pages
/// are what is modelled here, the counts that are hints are not.
struct Mover<R> {
    table: OnceCell<Rc<Table>>,
    inner: LoomPlatform<Newest>,
    rule: PhantomData<fn() -> R>,
}

impl<R> Default for Mover<R> {
    fn default() -> Self {
        Self { table: OnceCell::new(), inner: LoomPlatform::new(), rule: PhantomData }
    }
}

impl<R> fmt::Debug for Mover<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mover")
    }
}

impl<R: Rule> Platform for Mover<R> {
    type Byte = Byte;
    type Half = Half;
    type Word = Newest;
    type Lock<T: Send> = LoomLock<T>;
    type Slot<T: Send> = SharedSlot<T, LoomLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        self.inner.cpu()
    }
    fn relax() {
        WAITED.set(WAITED.get() + 1);
        LoomPlatform::<Newest>::relax();
    }

    fn light_fence() {
        LoomPlatform::<Newest>::light_fence();
    }
    fn heavy_fence() -> Result<(), FenceUnsupported> {
        LoomPlatform::<Newest>::heavy_fence()
    }
}

impl<R: Rule> Host for Mover<R> {
    fn can_migrate(&self) -> bool {
        true
    }
    fn migrate<S: Policy>(
        &self,
        allocator: &Allocator<'_, Self, S>,
        page: &Migration,
    ) -> Result<(), Immovable> {
        assert_eq!(page.order, Order::ZERO, "no larger block is held");
        let table = self.table.get().expect("nothing is compacted before the model begins");
        R::migrate(table, page, |pfn| {
            let _ = allocator.free_raw(pfn, Order::ZERO);
        })
    }
}

type Model<R, S> = World<Mover<R>, S>;

/// A world in which `held` is held, all else is free and merged, and the pages in the frames
/// `pages`, which are held too, are in the host's table.
fn world<R: Rule, S: Policy>(
    plan: &'static Plan,
    pages: &[u64],
    held: &[u64],
) -> (Rc<Model<R, S>>, Rc<Table>, Vec<Pfn>) {
    let world = Model::<R, S>::new(plan);
    let all = world.take_on(0, plan.frames() as usize);
    let (held, free): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|pfn| pages.contains(&pfn.get()) || held.contains(&pfn.get()));
    world.give_on(0, &free);
    world.allocator().drain_all();
    assert_eq!(world.zone().free, free.len() as u64);
    let mut contents = vec![None; plan.frames() as usize];
    pages.iter().enumerate().for_each(|(at, &pfn)| contents[pfn as usize] = Some(at));
    let table = Rc::new(Table {
        pages: pages.iter().map(|&pfn| LoomLock::new(Some(Pfn::new(pfn)))).collect(),
        contents: RefCell::new(contents),
        ledger: world.ledger().clone(),
        answered: Cell::new(0),
    });
    let set = world.allocator().platform().table.set(table.clone());
    assert!(set.is_ok(), "once");
    let rest = held.into_iter().filter(|pfn| !pages.contains(&pfn.get())).collect();
    (world, table, rest)
}

/// All is freed, and all is well.
fn end<R: Rule, S: Policy>(
    world: &Model<R, S>,
    table: &Table,
    held: impl IntoIterator<Item = Pfn>,
) {
    held.into_iter().for_each(|pfn| world.give(pfn));
    let left = (0..table.pages.len()).filter_map(|page| table.take_out(page));
    left.for_each(|pfn| world.give(pfn));
    assert_eq!(world.zone().compaction.migrate_mismatches, 0, "the host's answers were true");
    world.finish();
}

fn compact<R: Rule, S: Policy>(world: &Model<R, S>, order: u8) -> CompactOutcome {
    let order = Order::new(order).expect("an order");
    world.allocator().compact_zone(ZONE, order, CompactMode::Sync)
}

/// In how many runs a page was moved, and in how many none was: a model in which the order of
/// things is always the same shows nothing.
#[derive(Clone, Default)]
struct Seen(Arc<[AtomicUsize; 2]>);

impl Seen {
    fn note(&self, happened: bool) {
        self.0[usize::from(happened)].fetch_add(1, Relaxed);
    }
    fn both(&self) {
        let [not, yes] = [0, 1].map(|at| self.0[at].load(Relaxed));
        println!("    in {yes} runs, not in {not}");
        assert!(yes > 0 && not > 0, "the model has one side only");
    }
}

/// With the page in frame 1, one of each aligned block of four: one has to move for a block of
/// four to form.
const SPREAD: [u64; 3] = [5, 9, 13];

/// What the owner does beside the compaction.
#[derive(Clone, Copy)]
struct Owner {
    /// Which page of the table he frees.
    page: usize,
    /// Past the cache of his CPU, so that it merges at once; or into it.
    direct: bool,
    /// Whether he takes a frame then, which may be the one that he has freed.
    takes: bool,
}

/// Into the cache, and out of it again: the place of the page is held, by another name.
const CACHED: Owner = Owner { page: PAGE, direct: false, takes: true };
/// To the lists, and from there whatever is free: the target, what the page left behind.
const DIRECT: Owner = Owner { page: PAGE, direct: true, takes: true };
/// To the lists, where it merges.
const FREES: Owner = Owner { takes: false, ..DIRECT };

/// Runs `compact` on CPU 0 while the owner does his part on CPU 1. Returns what he took, and
/// what `compact` says.
fn beside<R: Rule, S: Policy, T>(
    (world, table): (&Rc<Model<R, S>>, &Rc<Table>),
    owner: Owner,
    compact: impl FnOnce() -> T,
) -> (Option<Pfn>, T) {
    let table = table.clone();
    let claimed = owner.direct.then(|| world.allocator().handle(CpuId(1)).expect("idle"));
    let other = spawn_on(world, 1, move |world| {
        let own = table.take_out(owner.page).expect("no other thread takes it out");
        world.give(own);
        owner.takes.then(|| world.take().expect("I-6: many are free"))
    });
    let compacted = compact();
    let taken = other.join().unwrap();
    drop(claimed);
    (taken, compacted)
}

/// One compacts; the other frees the page that is to be moved, wherever that is by then.
fn page<R: Rule, S: Policy>(plan: &'static Plan, owner: Owner, bound: Option<usize>) -> Seen {
    let seen = Seen::default();
    let note = seen.clone();
    explore("page", bound, move || {
        let (world, table, held) = world::<R, S>(plan, &[1], &SPREAD);
        let (taken, _) = beside((&world, &table), owner, || compact(&world, 2));
        note.note(table.answered.get() > 0);
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen
}

/// [`page`] to the lists, where it merges.
///
/// At most 2 preemptions: 1 800 runs, 0.9 s.
#[test]
fn a_page_of_the_lists() {
    page::<Obeys, Linux416>(batch_plan(16, 2, 2), FREES, Some(2)).both();
}

/// [`page`] into the cache, and the place of the page is held again, by another name; scanners meet
/// in the middle.
///
/// At most 3 preemptions: 4 200 runs, 2.5 s.
#[test]
fn a_page_of_the_cache() {
    page::<Obeys, Linux416>(batch_plan(16, 2, 2), CACHED, Some(3)).both();
}

/// As [`a_page_of_the_lists`], and a frame is taken from the lists.
///
/// At most 2 preemptions: 2 800 runs, 1.8 s.
#[test]
fn a_page_and_a_frame_of_the_lists() {
    page::<Obeys, Linux416>(batch_plan(16, 2, 2), DIRECT, Some(2)).both();
}

/// [`page`] with a host that refuses: the target goes back, the page is its owner's.
///
/// At most 3 preemptions: 4 200 runs, 1.9 s.
#[test]
fn a_page_that_stays() {
    page::<Refuses, Linux416>(batch_plan(16, 2, 2), CACHED, Some(3)).both();
}

/// As [`a_page_that_stays`], past the cache.
///
/// At most 2 preemptions: 3 100 runs, 1.7 s.
#[test]
fn a_page_that_stays_past_the_cache() {
    page::<Refuses, Linux416>(batch_plan(16, 2, 2), DIRECT, Some(2)).both();
}

/// Canary: [`page`] with a host that says it has moved what the owner has freed.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_looks_first() {
    page::<LooksFirst, Linux416>(batch_plan(16, 2, 2), CACHED, Some(2));
}

/// Canary: [`page`] when the place of a page that stays is freed.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_frees_refused() {
    page::<FreesRefused, Linux416>(batch_plan(16, 2, 2), CACHED, Some(2));
}

/// Canary: [`page`] when a page is moved to a place that goes back.
#[test]
#[should_panic(expected = "a held block can be freed: DoubleFree")]
fn canary_moves_and_refuses() {
    page::<MovesAndRefuses, Linux416>(batch_plan(16, 2, 2), CACHED, Some(2));
}

/// One compacts; the other frees the page beside the one that is to be moved, which merges with
/// what becomes free there.
///
/// At most 3 preemptions: 16 400 runs, 10 s.
#[test]
fn the_page_beside_it() {
    let (plan, seen) = (batch_plan(16, 2, 2), Seen::default());
    let note = seen.clone();
    let owner = Owner { page: 1, ..DIRECT };
    explore("neighbour", Some(3), move || {
        let (world, table, held) = world::<Obeys, Linux416>(plan, &[1, 0], &SPREAD);
        let (taken, _) = beside((&world, &table), owner, || compact(&world, 2));
        note.note(table.answered.get() > 1);
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen.both();
}

/// A whole pageblock is wanted, so the one that is evacuated is set apart: what the owner frees
/// there goes to lists of its own, until it has the type back that it had.
///
/// At most 2 preemptions: 2 300 runs, 1.9 s.
#[test]
fn a_pageblock_is_set_apart() {
    let (plan, seen) = (batch_plan(24, 2, 2), Seen::default());
    let note = seen.clone();
    let owner = Owner { page: 1, ..FREES };
    explore("set apart", Some(2), move || {
        let (world, table, held) = world::<Obeys, Linux416>(plan, &[1, 6], &[10, 12, 18, 20]);
        let (taken, _) = beside((&world, &table), owner, || compact(&world, 3));
        note.note(table.answered.get() > 1);
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen.both();
}

/// A request compacts, and takes the block in the hold in which it forms; the page is freed
/// meanwhile.
///
/// At most 2 preemptions: 2 700 runs, 1.6 s.
#[test]
fn a_request_takes_the_block() {
    let (plan, seen) = (batch_plan(16, 2, 2), Seen::default());
    let note = seen.clone();
    explore("request", Some(2), move || {
        let (world, table, held) = world::<Obeys, Linux416>(plan, &[1], &SPREAD);
        let order = Order::new(2).expect("an order");
        let ask = || world.ask(&MOVABLE.with_order(order));
        let (taken, block) = beside((&world, &table), FREES, ask);
        note.note(table.answered.get() > 0);
        // None if the owner was slow to free what he had taken out.
        block.into_iter().for_each(|pfn| world.give_block(pfn, order));
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen.both();
}

/// Two want blocks of one zone: one compacts it, the other waits for its turn, and neither is told
/// that the zone is taken.
fn two_requests<S: Policy>(plan: &'static Plan, bound: Option<usize>) -> Seen {
    let seen = Seen::default();
    let note = seen.clone();
    explore("two requests", bound, move || {
        let (world, table, held) = world::<Obeys, S>(plan, &[1], &SPREAD);
        WAITED.set(0);
        let other = spawn_on(&world, 1, |world| compact(world, 2));
        let outcomes = [compact(&world, 2), other.join().unwrap()];
        assert_eq!(outcomes, [CompactOutcome::Success; 2], "one block does for both");
        assert_eq!(table.answered.get(), 1, "the second finds what the first has made");
        note.note(WAITED.get() > 0);
        end(&world, &table, held);
    });
    seen
}

/// All orders: 40 runs, 0.01 s.
#[test]
fn requests_take_turns() {
    two_requests::<Linux416>(batch_plan(16, 2, 2), None).both();
}

/// [`requests_take_turns`] where a request that waits has disabled clusters.
///
/// At most 3 preemptions: 1 600 runs, 1.1 s.
#[test]
fn requests_take_turns_with_clusters_off() {
    two_requests::<ClusterFree>(batch_plan(16, 2, 2), Some(3)).both();
}
