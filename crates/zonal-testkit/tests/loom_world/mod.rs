//! An allocator on loom with a ledger of who holds which frame: made inside a model, checked
//! at its end.

use loom::cell::UnsafeCell;
use loom::thread::JoinHandle;
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use zonal::info::ZoneInfo;
use zonal::plan::Plan;
use zonal::policy::Policy;
use zonal::preset::Linux416;
use zonal::{Allocator, CpuId, Host, MigrateType, Order, Pfn};
use zonal::{Request, ZoneId};
use zonal_tables::HeapTables;
use zonal_testkit::cluster_check::check_clusters;
use zonal_testkit::loom_platform::{LoomPlatform, alone, move_to, spawn, spawn_with_room};

/// Orders of blocks that leave eight of 32 frames free.
pub(crate) const ALL_BUT_8: [u8; 2] = [4, 3];

/// An allocator with its tables, and the ledger of who holds which frame.
pub(crate) struct World<P: Host + 'static = LoomPlatform, S: Policy = Linux416> {
    /// Borrows from `tables`; never lent out for longer than the world is.
    allocator: ManuallyDrop<Allocator<'static, P, S>>,
    tables: NonNull<HeapTables<P, S>>,
    plan: &'static Plan,
    ledger: Rc<Ledger>,
    fresh: ZoneInfo,
}

/// Who holds which frame.
#[derive(Debug)]
pub(crate) struct Ledger {
    held: RefCell<Vec<bool>>,
    /// Stand for the frames' contents: loom objects to two holders of which one did not see
    /// the other let go.
    contents: Vec<UnsafeCell<()>>,
}

impl Ledger {
    fn new(frames: u64) -> Self {
        Self {
            held: RefCell::new(vec![false; frames as usize]),
            contents: (0..frames).map(|_| UnsafeCell::new(())).collect(),
        }
    }

    /// Enters a block that was just handed out.
    ///
    /// # Panics
    /// If a frame of it is held by a thread (I-3), or was let go by one whose writes this thread
    /// does not see.
    pub(crate) fn took(&self, pfn: Pfn, order: Order) {
        for at in frames_of(pfn, order) {
            assert!(!std::mem::replace(&mut self.held.borrow_mut()[at], true), "I-3: {at} twice");
            self.contents[at].with_mut(|_| ());
        }
    }

    /// Strikes a block that is about to be freed.
    ///
    /// # Panics
    /// If a frame of it was not held.
    pub(crate) fn giving(&self, pfn: Pfn, order: Order) {
        for at in frames_of(pfn, order) {
            self.contents[at].with_mut(|_| ());
            assert!(std::mem::replace(&mut self.held.borrow_mut()[at], false), "{at} not held");
        }
    }
}

impl<P: Host + Default + 'static, S: Policy> World<P, S> {
    /// All frames of `plan` free.
    ///
    /// # Panics
    /// If the allocator cannot be built.
    #[must_use]
    pub(crate) fn new(plan: &'static Plan) -> Rc<Self> {
        Self::with(plan, |_| ())
    }

    /// All frames of `plan` free once `prepare` has brought what is to come later.
    ///
    /// # Panics
    /// If the allocator cannot be built.
    #[must_use]
    pub(crate) fn with(
        plan: &'static Plan,
        prepare: impl FnOnce(&Allocator<'_, P, S>),
    ) -> Rc<Self> {
        Self::over(Self::tables(plan), plan, prepare)
    }

    /// Tables that nothing else has. Apart, as a model's first thread has a stack of 32 KiB, and unoptimised code has
    /// each table on it several times.
    fn tables(plan: &'static Plan) -> Box<HeapTables<P, S>> {
        Box::new(HeapTables::new(plan).unwrap())
    }

    fn over(
        tables: Box<HeapTables<P, S>>,
        plan: &'static Plan,
        prepare: impl FnOnce(&Allocator<'_, P, S>),
    ) -> Rc<Self> {
        let tables = NonNull::from(Box::leak(tables));
        // SAFETY: the box was leaked above and is freed only by `drop`, which ends the
        // allocator first; no other code has the pointer. The lifetime made up here goes no
        // further than the field `allocator`, which is lent out for a borrow of the world.
        let borrowed: &'static mut HeapTables<P, S> = unsafe { &mut *tables.as_ptr() };
        let built = Allocator::new(P::default(), plan, borrowed.storage());
        let allocator = built.expect("an allocator");
        prepare(&allocator);
        let fresh = allocator.zone_info(ZoneId(0)).expect("a zone");
        let zones =
            (0..allocator.zone_count() as u8).filter_map(|id| allocator.zone_info(ZoneId(id)));
        let free: u64 = zones.map(|zone| zone.free).sum();
        assert_eq!(free, plan.frames(), "all free at the start");
        Rc::new(Self {
            allocator: ManuallyDrop::new(allocator),
            tables,
            plan,
            ledger: Rc::new(Ledger::new(plan.frames())),
            fresh,
        })
    }
}

impl<P: Host, S: Policy> Drop for World<P, S> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, and not used again: this is the world's end.
        unsafe { ManuallyDrop::drop(&mut self.allocator) };
        // SAFETY: from `Box::leak` in `over`; the allocator, the only borrower, is gone.
        drop(unsafe { Box::from_raw(self.tables.as_ptr()) });
    }
}

impl<P: Host, S: Policy> fmt::Debug for World<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("plan", &self.plan).finish_non_exhaustive()
    }
}

fn frames_of(pfn: Pfn, order: Order) -> std::ops::Range<usize> {
    let first = pfn.get() as usize;
    first..first + order.frames() as usize
}

/// One movable frame.
pub(crate) const MOVABLE: Request = Request::frame().migrate(MigrateType::Movable);

impl<P: Host, S: Policy> World<P, S> {
    /// The allocator.
    #[must_use]
    pub(crate) fn allocator(&self) -> &Allocator<'_, P, S> {
        &self.allocator
    }

    /// For a host that moves pages.
    #[must_use]
    pub(crate) fn ledger(&self) -> &Rc<Ledger> {
        &self.ledger
    }

    /// As [`Ledger::took`].
    ///
    /// # Panics
    /// As that.
    pub(crate) fn took(&self, pfn: Pfn, order: Order) {
        self.ledger.took(pfn, order);
    }

    /// As [`Ledger::giving`].
    ///
    /// # Panics
    /// As that.
    pub(crate) fn giving(&self, pfn: Pfn, order: Order) {
        self.ledger.giving(pfn, order);
    }

    /// Allocates a movable block on the current CPU.
    #[must_use]
    pub(crate) fn take_block(&self, order: Order) -> Option<Pfn> {
        let pfn = self.allocator.alloc_raw(&MOVABLE.with_order(order)).ok()?;
        self.took(pfn, order);
        Some(pfn)
    }

    /// Allocates what is asked for on the current CPU.
    #[must_use]
    pub(crate) fn ask(&self, request: &Request) -> Option<Pfn> {
        let pfn = self.allocator.alloc_raw(request).ok()?;
        self.took(pfn, request.order());
        Some(pfn)
    }

    /// Frees a block on the current CPU.
    ///
    /// # Panics
    /// If that is refused.
    pub(crate) fn give_block(&self, pfn: Pfn, order: Order) {
        self.giving(pfn, order);
        self.allocator.free_raw(pfn, order).expect("a held block can be freed");
    }

    /// Allocates a movable frame on the current CPU.
    #[must_use]
    pub(crate) fn take(&self) -> Option<Pfn> {
        self.take_block(Order::ZERO)
    }

    /// Frees a frame on the current CPU.
    ///
    /// # Panics
    /// If that is refused.
    pub(crate) fn give(&self, pfn: Pfn) {
        self.give_block(pfn, Order::ZERO);
    }

    /// Allocates `frames` movable frames on `cpu`, for the start of a model.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    pub(crate) fn take_on(&self, cpu: u32, frames: usize) -> Vec<Pfn> {
        move_to(cpu);
        let taken = (0..frames).map(|_| self.take().expect("a frame")).collect();
        move_to(0);
        taken
    }

    /// Allocates one movable block of each of `orders`, so that little is left free.
    ///
    /// # Panics
    /// If there is not that much.
    #[must_use]
    pub(crate) fn occupy(&self, orders: &[u8]) -> Vec<(Pfn, Order)> {
        let orders = orders.iter().map(|&order| Order::new(order).expect("an order"));
        orders.map(|order| (self.take_block(order).expect("a block"), order)).collect()
    }

    /// Frees blocks.
    pub(crate) fn vacate(&self, blocks: &[(Pfn, Order)]) {
        blocks.iter().for_each(|&(pfn, order)| self.give_block(pfn, order));
    }

    /// Frees frames on `cpu`.
    pub(crate) fn give_on(&self, cpu: u32, frames: &[Pfn]) {
        move_to(cpu);
        frames.iter().for_each(|&pfn| self.give(pfn));
        move_to(0);
    }

    /// The zone as it is.
    ///
    /// # Panics
    /// Not: there is a zone.
    #[must_use]
    pub(crate) fn zone(&self) -> ZoneInfo {
        self.allocator.zone_info(ZoneId(0)).expect("the zone")
    }

    /// As [`settle`](Self::settle), and all is merged as at the start (I-5).
    ///
    /// # Panics
    /// If not.
    pub(crate) fn finish(&self) {
        let after = self.settle();
        assert_eq!(after.blocks, self.fresh.blocks, "I-5: merged as at the start");
        assert_eq!(after.events.refused, 0, "no copies without misuse");
    }

    /// Checks, when all threads have ended and all frames are given back, that every frame is
    /// in one place (I-1, I-2), that a drain finds them all (I-3), that no buddies are apart
    /// then (I-5), and that clusters are what their slots say. Returns the zone as it is then.
    ///
    /// # Panics
    /// If not.
    pub(crate) fn settle(&self) -> ZoneInfo {
        alone();
        assert!(!self.ledger.held.borrow().contains(&true), "the model gave all back");
        let mut seen = vec![0_u32; self.plan.frames() as usize];
        self.allocator.visit_free(ZoneId(0), &mut |pfn, place| {
            for frame in frames_of(pfn, place.order()) {
                let times = seen.get_mut(frame).expect("I-1: a block ends beyond the frames");
                *times += 1;
                // A list that goes round in circles must not be followed for ever.
                assert!(*times == 1, "I-1: frame {frame} in two places");
            }
        });
        assert!(seen.iter().all(|&times| times == 1), "I-1: places of each frame: {seen:?}");
        check_clusters(&self.allocator).expect("clusters as their slots say");
        let before = self.zone();
        assert_eq!(before.free + before.cached, before.managed, "I-2");
        let drained = self.allocator.drain_all();
        assert_eq!(drained, before.cached, "a drain gives what was cached");
        let after = self.zone();
        assert_eq!((after.free, after.cached), (after.managed, 0), "I-3");
        self.check_merged();
        check_clusters(&self.allocator).expect("clusters as their slots say");
        let (mut out, mut back) = (after.events.direct_alloc, after.events.direct_free);
        for cpu in (0..self.allocator.cpus()).map(CpuId) {
            let events = self.allocator.cache_info(ZoneId(0), cpu).expect("a cache").events;
            out += events.alloc;
            back += events.free;
        }
        assert_eq!(out, back, "as many frames were booked out as back");
        after
    }

    fn check_merged(&self) {
        let mut listed = Vec::new();
        self.allocator.visit_free(ZoneId(0), &mut |pfn, place| listed.push((pfn.get(), place)));
        for &(pfn, place) in &listed {
            let buddy = (pfn ^ place.order().frames(), place);
            assert!(!listed.contains(&buddy), "I-5: {pfn} and its buddy: {place:?}");
        }
    }
}

/// Starts a model thread on `cpu`.
pub(crate) fn spawn_on<P: Host + 'static, S: Policy, R: Send + 'static>(
    world: &Rc<World<P, S>>,
    cpu: u32,
    f: impl FnOnce(&World<P, S>) -> R + 'static,
) -> JoinHandle<R> {
    let world = world.clone();
    spawn(cpu, move || f(&world))
}

/// What is never used by another thread of the machine.
struct OneThread<T>(T);

// SAFETY: goes to model threads only, and those of a model are one thread of the machine.
unsafe impl<T> Send for OneThread<T> {}

/// As [`spawn_on`], with a stack four times as large.
pub(crate) fn spawn_with_room_on<P: Host + 'static, S: Policy, R: Send + 'static>(
    world: &Rc<World<P, S>>,
    cpu: u32,
    f: impl FnOnce(&World<P, S>) -> R + Send + 'static,
) -> JoinHandle<R> {
    let world = OneThread(world.clone());
    spawn_with_room(cpu, move || {
        let OneThread(world) = &{ world };
        f(world)
    })
}
