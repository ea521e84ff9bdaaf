//! A host on loom that moves pages by a table of its own, hosts that break its contract, and an owner who
//! frees the page, or the one beside it, while another CPU compacts.

use crate::loom_world::{Ledger, World, spawn_on};
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
use zonal::platform::{AtomicWord, FenceUnsupported, Lock, Platform};
use zonal::policy::Policy;
use zonal::{Allocator, CpuId, Order, Pfn, ZoneId};
use zonal::{Immovable, Migration};
use zonal_testkit::loom_platform::{Byte, Half, LoomLock, LoomPlatform, Newest, explore};

/// The page that the model is about is the first of the table.
pub(crate) const PAGE: usize = 0;
pub(crate) const ZONE: ZoneId = ZoneId(0);

/// The host's table: where each page is, and what is in each frame.
pub(crate) struct Table {
    /// `None`: its owner took it out. The lock is the page's lock.
    pub(crate) pages: Vec<LoomLock<Option<Pfn>>>,
    /// By frame, the page in it: changes together with the ledger.
    contents: RefCell<Vec<Option<usize>>>,
    ledger: Rc<Ledger>,
    /// How often a page was there and was moved, or refused.
    pub(crate) answered: Cell<usize>,
    /// Which CPU asked for the page in which frame, and whether that was moved.
    pub(crate) answers: RefCell<Vec<(CpuId, Pfn, bool)>>,
}

impl Table {
    /// Copies the page to where it shall be: both frames are the host's for that moment.
    pub(crate) fn copy(&self, page: usize, to: &Migration) {
        self.ledger.took(to.to, Order::ZERO);
        self.ledger.giving(to.from, Order::ZERO);
        let mut contents = self.contents.borrow_mut();
        let there = contents[to.from.get() as usize].take();
        assert_eq!(there, Some(page), "{to:?} moves another owner's page");
        contents[to.to.get() as usize] = there;
        self.answered.set(self.answered.get() + 1);
    }

    /// The owner's way to a page that he is about to free; `None` if he did so before.
    pub(crate) fn take_out(&self, page: usize) -> Option<Pfn> {
        let pfn = self.pages[page].with(Option::take)?;
        let there = self.contents.borrow_mut()[pfn.get() as usize].take();
        assert_eq!(there, Some(page), "the owner frees what he owns");
        Some(pfn)
    }
}

/// What a host does when it is asked to move a page. `free` frees a frame behind the owner's
/// back.
pub(crate) trait Rule: Sized + 'static {
    fn migrate(table: &Table, wanted: &Migration, free: impl Fn(Pfn)) -> Result<(), Immovable>;
}

/// Moves what it can lock.
pub(crate) enum Obeys {}

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
pub(crate) enum Refuses {}

impl Rule for Refuses {
    fn migrate(table: &Table, wanted: &Migration, _: impl Fn(Pfn)) -> Result<(), Immovable> {
        let here = table.pages[PAGE].try_with(|place| *place == Some(wanted.from));
        table.answered.set(table.answered.get() + usize::from(here == Some(true)));
        Err(Immovable)
    }
}

/// Planted bug: looks whether the page is there and does not hold on to it, so its owner may
/// free the place from which it is said to have moved.
pub(crate) enum LooksFirst {}

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
pub(crate) enum FreesRefused {}

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
pub(crate) enum MovesAndRefuses {}

impl Rule for MovesAndRefuses {
    fn migrate(table: &Table, wanted: &Migration, free: impl Fn(Pfn)) -> Result<(), Immovable> {
        let _ = Obeys::migrate(table, wanted, free);
        Err(Immovable)
    }
}

thread_local! {
    /// How often a thread waited. All threads of a model are one of the host's.
    pub(crate) static WAITED: Cell<u32> = const { Cell::new(0) };
}

/// Loom's host with a table of pages. Words return what was written last: states and the pages
/// are what is modelled here, the counts that are hints are not.
/// `W` may be a word with a planted bug.
pub(crate) struct Mover<R, W = Newest> {
    table: OnceCell<Rc<Table>>,
    inner: LoomPlatform<W>,
    rule: PhantomData<fn() -> R>,
}

impl<R, W> Default for Mover<R, W> {
    fn default() -> Self {
        Self { table: OnceCell::new(), inner: LoomPlatform::new(), rule: PhantomData }
    }
}

impl<R, W> fmt::Debug for Mover<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mover")
    }
}

impl<R: Rule, W: AtomicWord + 'static> Platform for Mover<R, W> {
    type Byte = Byte;
    type Half = Half;
    type Word = W;
    type Lock<T: Send> = LoomLock<T>;
    type Slot<T: Send> = SharedSlot<T, LoomLock<Guarded<T>>>;

    fn cpu(&self) -> CpuId {
        self.inner.cpu()
    }
    fn relax() {
        WAITED.set(WAITED.get() + 1);
        LoomPlatform::<W>::relax();
    }

    fn light_fence() {
        LoomPlatform::<W>::light_fence();
    }
    fn heavy_fence() -> Result<(), FenceUnsupported> {
        LoomPlatform::<W>::heavy_fence()
    }
}

impl<R: Rule, W: AtomicWord + 'static> Host for Mover<R, W> {
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
        let answer = R::migrate(table, page, |pfn| {
            let _ = allocator.free_raw(pfn, Order::ZERO);
        });
        table.answers.borrow_mut().push((self.cpu(), page.from, answer.is_ok()));
        answer
    }
}

pub(crate) type Model<R, S, W = Newest> = World<Mover<R, W>, S>;

/// A world in which `held` is held, all else is free and merged, and the pages in the frames
/// `pages`, which are held too, are in the host's table.
pub(crate) fn world<R: Rule, S: Policy, W: AtomicWord + 'static>(
    plan: &'static Plan,
    pages: &[u64],
    held: &[u64],
) -> (Rc<Model<R, S, W>>, Rc<Table>, Vec<Pfn>) {
    let world = Model::<R, S, W>::new(plan);
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
        answers: RefCell::default(),
    });
    let set = world.allocator().platform().table.set(table.clone());
    assert!(set.is_ok(), "once");
    let rest = held.into_iter().filter(|pfn| !pages.contains(&pfn.get())).collect();
    (world, table, rest)
}

/// All is freed, and all is well.
pub(crate) fn end<R: Rule, S: Policy, W: AtomicWord + 'static>(
    world: &Model<R, S, W>,
    table: &Table,
    held: impl IntoIterator<Item = Pfn>,
) {
    held.into_iter().for_each(|pfn| world.give(pfn));
    let left = (0..table.pages.len()).filter_map(|page| table.take_out(page));
    left.for_each(|pfn| world.give(pfn));
    assert_eq!(world.zone().compaction.migrate_mismatches, 0, "the host's answers were true");
    world.finish();
}

pub(crate) fn compact<R: Rule, S: Policy, W: AtomicWord + 'static>(
    world: &Model<R, S, W>,
    order: u8,
) -> CompactOutcome {
    let order = Order::new(order).expect("an order");
    world.allocator().compact_zone(ZONE, order, CompactMode::Sync)
}

/// In how many runs a page was moved, and in how many none was: a model in which the order of
/// things is always the same shows nothing.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<[AtomicUsize; 2]>);

impl Seen {
    pub(crate) fn note(&self, happened: bool) {
        self.0[usize::from(happened)].fetch_add(1, Relaxed);
    }
    pub(crate) fn both(&self) {
        let [not, yes] = [0, 1].map(|at| self.0[at].load(Relaxed));
        println!("    in {yes} runs, not in {not}");
        assert!(yes > 0 && not > 0, "the model has one side only");
    }
}

/// With the page in frame 1, one of each aligned block of four: one has to move for a block of
/// four to form.
pub(crate) const SPREAD: [u64; 3] = [5, 9, 13];

/// What the owner does beside the compaction.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    /// Which page of the table he frees.
    pub(crate) page: usize,
    /// Past the cache of his CPU, so that it merges at once; or into it.
    pub(crate) direct: bool,
    /// Whether he takes a frame then, which may be the one that he has freed.
    pub(crate) takes: bool,
}

/// Into the cache, and out of it again: the place of the page is held, by another name.
pub(crate) const CACHED: Owner = Owner { page: PAGE, direct: false, takes: true };
/// To the lists, and from there whatever is free: the target, what the page left behind.
pub(crate) const DIRECT: Owner = Owner { page: PAGE, direct: true, takes: true };
/// To the lists, where it merges.
pub(crate) const FREES: Owner = Owner { takes: false, ..DIRECT };

/// Runs `compact` on CPU 0 while the owner does his part on CPU 1. Returns what he took, and
/// what `compact` says.
pub(crate) fn beside<R: Rule, S: Policy, T>(
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
pub(crate) fn page<R: Rule, S: Policy>(
    plan: &'static Plan,
    owner: Owner,
    bound: Option<usize>,
) -> Seen {
    let seen = Seen::default();
    let note = seen.clone();
    explore("page", bound, move || {
        let (world, table, held) = world::<R, S, Newest>(plan, &[1], &SPREAD);
        let (taken, _) = beside((&world, &table), owner, || compact(&world, 2));
        note.note(table.answered.get() > 0);
        end(&world, &table, held.into_iter().chain(taken));
    });
    seen
}
