//! One virtual CPU: draws commands, does them, and keeps the ledger.

use crate::host::{Explored, Parts};
use crate::swarm::{Act, Swarm};
use fastrand::Rng;
use zonal::error::FreeError;
use zonal::policy::Policy;
use zonal::watermark::Watermarks;
use zonal::{
    AllocError, Allocator, ClustersOff, CompactMode, Contiguous, CpuHandle, CpuId, Isolated,
    MigrateType, Order, Pfn, Request, ZoneId,
};
use zonal_sim::explore;
use zonal_testkit::command::{Ask, Nodes};
use zonal_testkit::model::{Model, Search};
use zonal_testkit::snapshot::Snapshot;

/// How often the allocator looks for a single frame that others move about.
const SEARCHES: u64 = 8;

/// What a CPU has, from one round to the next.
pub(crate) struct State {
    pub(crate) dice: Rng,
    /// Names in the ledger.
    pub(crate) held: Vec<u64>,
    pub(crate) contiguous: Vec<(Contiguous, Vec<u64>)>,
    pub(crate) isolated: Vec<Isolated>,
    pub(crate) frames: u64,
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        let dice = Rng::with_seed(seed);
        Self { dice, held: vec![], contiguous: vec![], isolated: vec![], frames: 0 }
    }
}

/// A CPU at work.
pub(crate) struct Cpu<'w, 'm, 's, K: Parts, S: Policy> {
    pub(crate) number: u32,
    pub(crate) swarm: &'s Swarm,
    pub(crate) allocator: &'w Allocator<'m, Explored<K>, S>,
    pub(crate) state: &'s mut State,
    pub(crate) handle: Option<CpuHandle<'w, 'm, Explored<K>, S>>,
    pub(crate) off: Option<ClustersOff<'w, Explored<K>, S>>,
    /// Prints what it does.
    pub(crate) loud: bool,
}

impl<'w, K: Parts, S: Policy> Cpu<'w, '_, '_, K, S> {
    /// A round.
    pub(crate) fn run(&mut self) {
        let host = self.host();
        for _ in 0..self.swarm.commands {
            if explore::stopped() || host.ledger.failed() {
                break;
            }
            if self.state.dice.u32(..8) < self.swarm.rests_in_8 {
                explore::yield_now();
            }
            let act = self.draw();
            self.act(act);
        }
        // Giving up is a call like others: it takes locks.
        self.call(|cpu| cpu.off = None);
        self.call(|cpu| cpu.handle = None);
    }

    /// Gives back all it has, and what is posted.
    pub(crate) fn give_all(&mut self) {
        while !explore::stopped() && !self.host().ledger.failed() {
            if let Some((token, names)) = self.state.contiguous.pop() {
                self.give_contiguous(token, &names);
            } else if let Some(isolated) = self.state.isolated.pop() {
                self.undo_isolation(isolated);
            } else if !self.state.held.is_empty() {
                self.free();
            } else if !self.host().post.borrow().is_empty() {
                self.collect();
            } else {
                break;
            }
        }
    }

    fn host(&self) -> &'w Explored<K> {
        self.allocator.platform()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state.dice.usize(..bound.max(1))
    }

    fn draw(&mut self) -> Act {
        let sum: u32 = self.swarm.weights.iter().sum();
        let mut at = self.state.dice.u32(..sum);
        for (act, &weight) in Act::ALL.into_iter().zip(&self.swarm.weights) {
            if at < weight {
                return act;
            }
            at -= weight;
        }
        Act::Alloc
    }

    /// Enters the allocator. Also says how often others may have got in the way: 0 if no
    /// other CPU was inside all the time.
    fn call<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> (R, u64) {
        self.call_for(1, f)
    }

    /// The same for a call that gets in the way of others up to `times` times.
    fn call_for<R>(&mut self, times: u64, f: impl FnOnce(&mut Self) -> R) -> (R, u64) {
        let host = self.host();
        let (others, calls) = (host.inside.get(), host.calls.get() + times);
        host.inside.set(others + times);
        host.calls.set(calls);
        let result = f(self);
        host.inside.set(host.inside.get() - times);
        (result, others + host.calls.get() - calls)
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.loud {
            eprintln!("cpu {}: {}", self.number, what());
        }
    }

    fn act(&mut self, act: Act) {
        self.say(|| format!("{act:?}"));
        let host = self.host();
        host.steps.set(host.steps.get() + 1);
        match act {
            Act::Alloc => self.alloc(),
            Act::Free => self.free(),
            Act::Post => self.post(),
            Act::Collect => self.collect(),
            Act::AllocBulk => self.alloc_bulk(),
            Act::FreeBulk => self.free_bulk(),
            Act::DrainCpu => {
                let cpu = CpuId(self.state.dice.u32(..self.allocator.cpus()));
                self.call_for(SEARCHES, |of| of.allocator.drain_cpu(cpu));
            }
            Act::DrainAll => {
                self.call_for(SEARCHES, |of| of.allocator.drain_all());
            }
            Act::Compact => self.compact(),
            Act::CompactBehind => {
                let order = Order::new(self.state.dice.u8(1..=9)).unwrap_or(Order::HUGE);
                let (outcome, _) =
                    self.call_for(SEARCHES, |of| of.allocator.compact_in_background(order));
                self.say(|| format!("{outcome:?}"));
            }
            Act::Contiguous => self.contiguous(),
            Act::Range => self.range(),
            Act::Isolate => self.isolate(),
            Act::FreeWrongly => self.free_wrongly(),
            Act::Marks => self.marks(),
            Act::ClustersOff => {
                let zone = self.zone();
                let (off, _) = self.call(|of| match of.off.take() {
                    None => of.allocator.disable_clusters(zone),
                    Some(_) => None,
                });
                self.off = off;
            }
            Act::Own => {
                let cpu = CpuId(self.state.dice.u32(..self.allocator.cpus()));
                let (handle, _) = self.call(|of| match of.handle.take() {
                    None => of.allocator.handle(cpu).ok(),
                    Some(_) => None,
                });
                self.handle = handle;
            }
        }
    }

    fn zone(&mut self) -> ZoneId {
        ZoneId(self.below(self.allocator.zone_count()) as u8)
    }

    /// What the swarm lets it ask for.
    fn request(&mut self) -> Request {
        let order = self.swarm.orders[self.below(self.swarm.orders.len())];
        let migrate = self.swarm.types[self.below(self.swarm.types.len())] as u8;
        let seldom = self.swarm.plain_in;
        let plain = seldom == 0 || self.state.dice.u32(..seldom) > 0;
        let flags = if plain { 0 } else { self.swarm.flags & self.state.dice.u8(..) };
        let limit = if plain { 3 } else { self.state.dice.u8(..4) };
        let nodes = match self.state.dice.u8(..12) {
            0 if !plain => Nodes::Preferred(self.state.dice.u8(..2)),
            1 if !plain => Nodes::Bind(self.state.dice.u8(1..4)),
            2 if !plain => Nodes::Interleave(self.state.dice.u8(1..4)),
            _ => Nodes::Local,
        };
        Ask { order, migrate, limit, flags, nodes }.request()
    }

    /// Whether it has what is its due.
    fn is_full(&self) -> bool {
        let due = self.allocator.plan().managed() * self.swarm.wanted / 100;
        self.state.frames >= due / u64::from(self.swarm.cpus)
    }

    fn take(&mut self, request: &Request, pfn: Pfn) {
        let (host, order) = (self.host(), request.order());
        let node = host.node_asked(self.allocator.cpus(), self.handle.as_ref().map(CpuHandle::cpu));
        if let Some(node) = node {
            let empty = Model::new(self.allocator.plan());
            host.ledger.check(empty.check_served_raw(request, node, pfn));
        }
        let movable = request.migrate_type() == MigrateType::Movable;
        self.state.held.push(host.ledger.take(pfn, order, movable));
        self.state.frames += order.frames();
    }

    fn alloc(&mut self) {
        if self.is_full() {
            return self.free();
        }
        let request = self.request();
        self.host().commit(request.order().frames());
        let (result, disturbed) = self.call(|cpu| match &mut cpu.handle {
            Some(handle) => handle.alloc_raw(&request),
            None => cpu.allocator.alloc_raw(&request),
        });
        self.say(|| format!("{request:?}: {result:?}"));
        match result {
            Ok(pfn) => self.take(&request, pfn),
            Err(error) => {
                let peak = self.host().uncommit(request.order().frames());
                if self.swarm.test == "single_frames" && disturbed < SEARCHES {
                    self.check_free(&request, peak);
                }
                if disturbed == 0 {
                    self.check_refused(&request, &error);
                }
            }
        }
    }

    /// A refused single frame, while at no time all frames were out or asked for: one was free
    /// all the time, and others got in the way too seldom to move it out of sight of every
    /// search (I-6).
    fn check_free(&self, request: &Request, peak: u64) {
        let managed = self.allocator.plan().managed();
        self.host().among.set(self.host().among.get() + 1);
        if peak < managed {
            let what = format!("{request:?} failed, with {peak} of {managed} frames out");
            self.host().ledger.fail("I-6", what);
        }
    }

    /// No other CPU was inside, so what is free now was free, and had to be found (I-6).
    fn check_refused(&self, request: &Request, error: &AllocError) {
        let host = self.host();
        let owned = self.handle.as_ref().map(CpuHandle::cpu);
        let node = host.node_asked(self.allocator.cpus(), owned);
        let (Some(node), 0) = (node, host.apart.get()) else { return };
        host.alone.set(host.alone.get() + 1);
        let after = explore::alone(|| Snapshot::of(self.allocator));
        let model = host.ledger.model(self.allocator.plan());
        host.ledger.check(model.check_refused(request, node, error, &after, Search::of::<S>()));
    }

    fn alloc_bulk(&mut self) {
        let most = if self.state.dice.u32(..4) == 0 { 200 } else { 20 };
        let mut out = vec![Pfn::default(); self.below(most)];
        if self.is_full() {
            return self.free_bulk();
        }
        let request = self.request();
        let request = if most > 20 { request.with_order(Order::ZERO) } else { request };
        let asked = request.order().frames() * out.len() as u64;
        self.host().commit(asked);
        let (result, _) = self.call_for(out.len().max(1) as u64, |cpu| match &mut cpu.handle {
            Some(handle) => handle.alloc_bulk(&request, &mut out),
            None => cpu.allocator.alloc_bulk(&request, &mut out),
        });
        self.say(|| format!("{request:?}: {result:?} {out:?}"));
        if result.is_ok() {
            out.into_iter().for_each(|pfn| self.take(&request, pfn));
        } else {
            self.host().uncommit(asked);
        }
    }

    /// Takes one of its blocks.
    fn pick(&mut self) -> Option<u64> {
        let at = self.below(self.state.held.len());
        (!self.state.held.is_empty()).then(|| self.state.held.swap_remove(at))
    }

    /// Frees a block that has no holder by now; it must be taken (I-4).
    fn give(&mut self, pfn: Pfn, order: Order) {
        self.say(|| format!("frees {pfn} (order {order})"));
        let (freed, _) = self.call(|cpu| match &mut cpu.handle {
            Some(handle) => handle.free_raw(pfn, order),
            None => cpu.allocator.free_raw(pfn, order),
        });
        if let Err(error) = freed {
            self.host().ledger.fail("I-4", format!("a good free: {error}"));
        }
        self.host().uncommit(order.frames());
    }

    fn leave(&mut self, name: u64) -> (Pfn, Order) {
        let (pfn, order) = self.host().ledger.leave(name);
        self.state.frames = self.state.frames.saturating_sub(order.frames());
        (pfn, order)
    }

    fn free(&mut self) {
        if let Some(name) = self.pick() {
            let (pfn, order) = self.leave(name);
            self.give(pfn, order);
        }
    }

    fn post(&mut self) {
        if let Some(name) = self.pick() {
            let (pfn, order, movable) = self.host().ledger.pin(name);
            self.host().ledger.unpin(pfn, movable);
            self.state.frames = self.state.frames.saturating_sub(order.frames());
            self.host().post.borrow_mut().push(name);
        }
    }

    fn collect(&mut self) {
        let name = {
            let mut post = self.host().post.borrow_mut();
            let at = self.state.dice.usize(..post.len().max(1));
            (!post.is_empty()).then(|| post.swap_remove(at))
        };
        if let Some(name) = name {
            let (pfn, order) = self.host().ledger.leave(name);
            self.give(pfn, order);
        }
    }

    fn free_bulk(&mut self) {
        let most = self.below(200);
        let mut frames = Vec::new();
        for name in core::mem::take(&mut self.state.held) {
            let (pfn, order, movable) = self.host().ledger.pin(name);
            self.host().ledger.unpin(pfn, movable);
            if order == Order::ZERO && frames.len() < most {
                frames.push(self.leave(name).0);
            } else {
                self.state.held.push(name);
            }
        }
        self.say(|| format!("frees {frames:?}"));
        let (freed, _) = self.call_for(frames.len().max(1) as u64, |cpu| match &mut cpu.handle {
            Some(handle) => handle.free_bulk(&frames),
            None => cpu.allocator.free_bulk(&frames),
        });
        if (freed.freed, freed.refused) != (frames.len(), 0) {
            self.host().ledger.fail("I-4", format!("good frees in bulk: {freed:?}"));
        }
        self.host().uncommit(frames.len() as u64);
    }

    /// A free that does not fit a block that is out all the time is refused, and says why (I-4).
    fn free_wrongly(&mut self) {
        let Some(name) = self.pick() else { return };
        let (head, allocated, movable) = self.host().ledger.pin(name);
        let pfn = Pfn::new(head.get() + self.state.dice.u64(..allocated.frames()));
        let given = Order::new(self.state.dice.u8(..=10)).unwrap_or(Order::ZERO);
        let expected = if pfn != head {
            Some(FreeError::Inner { pfn, head, order: allocated })
        } else if given != allocated {
            Some(FreeError::WrongOrder { pfn, given, allocated })
        } else {
            None
        };
        if let Some(expected) = expected {
            let (freed, _) = self.call(|cpu| match &mut cpu.handle {
                Some(handle) => handle.free_raw(pfn, given),
                None => cpu.allocator.free_raw(pfn, given),
            });
            if freed != Err(expected) {
                let what = format!("a free of {pfn} as order {given}: {freed:?}, not {expected:?}");
                self.host().ledger.fail("I-4", what);
            }
        }
        self.host().ledger.unpin(head, movable);
        self.state.held.push(name);
    }

    fn compact(&mut self) {
        let (zone, order) = (self.zone(), Order::new(self.state.dice.u8(1..=10)));
        let mode = if self.state.dice.bool() { CompactMode::Sync } else { CompactMode::Async };
        let order = order.unwrap_or(Order::HUGE);
        let (outcome, _) =
            self.call_for(SEARCHES, |cpu| cpu.allocator.compact_zone(zone, order, mode));
        self.say(|| format!("{zone:?} {order:?} {mode:?}: {outcome:?}"));
    }

    fn keep(&mut self, token: Contiguous) {
        self.host().commit(token.frames());
        let pfns = token.range().start.get()..token.range().end.get();
        let take = |pfn| self.allocator.platform().ledger.take(Pfn::new(pfn), Order::ZERO, false);
        let names = pfns.map(take).collect();
        self.state.contiguous.push((token, names));
    }

    /// Frees contiguous frames, or allocates some.
    fn contiguous(&mut self) {
        if let Some((token, names)) = self.state.contiguous.pop() {
            return self.give_contiguous(token, &names);
        }
        let most = if self.state.dice.bool() { 40 } else { 1200 };
        let (frames, request) = (self.below(most) as u64 + 1, self.request());
        let (got, _) = self.call(|cpu| cpu.allocator.alloc_contiguous(frames, &request));
        self.say(|| format!("{frames} frames, {request:?}: {got:?}"));
        if let Ok(token) = got {
            self.keep(token);
        }
    }

    fn give_contiguous(&mut self, token: Contiguous, names: &[u64]) {
        for &name in names {
            self.host().ledger.leave(name);
        }
        let (freed, _) = self.call(|cpu| cpu.allocator.free_contiguous(token));
        if let Err(refused) = freed {
            self.host().ledger.fail("I-4", format!("contiguous frames: {refused:?}"));
        }
        self.host().uncommit(names.len() as u64);
    }

    /// Some frames of memory, whichever CPU has them.
    fn anywhere(&mut self, most: u64, align: u64) -> core::ops::Range<Pfn> {
        let plan = self.allocator.plan();
        let start = self.state.dice.u64(..plan.frames()) / align * align;
        let frames = (self.state.dice.u64(..most) / align + 1) * align;
        let start = plan.base().get() + start;
        Pfn::new(start)..Pfn::new(start + frames)
    }

    fn range(&mut self) {
        let range = self.anywhere(100, 1);
        let (got, _) = self.call(|cpu| cpu.allocator.alloc_range(range.clone()));
        self.say(|| format!("{range:?}: {got:?}"));
        if let Ok(token) = got {
            self.keep(token);
        }
    }

    /// Undoes an isolation, or isolates some pageblocks.
    fn isolate(&mut self) {
        if let Some(isolated) = self.state.isolated.pop() {
            return self.undo_isolation(isolated);
        }
        let block = self.allocator.plan().config().pageblock_order.frames();
        let range = self.anywhere(2 * block, block);
        self.host().apart.set(self.host().apart.get() + 1);
        let (got, _) = self.call(|cpu| cpu.allocator.isolate(range.clone()));
        self.say(|| format!("{range:?}: {got:?}"));
        match got {
            Ok(isolated) => self.state.isolated.push(isolated),
            Err(_) => self.host().apart.set(self.host().apart.get() - 1),
        }
    }

    fn undo_isolation(&mut self, isolated: Isolated) {
        let (undone, _) = self.call(|cpu| cpu.allocator.undo_isolation(isolated));
        if let Err(refused) = undone {
            self.host().ledger.fail("command", format!("an isolation: {refused:?}"));
        }
        self.host().apart.set(self.host().apart.get() - 1);
    }

    fn marks(&mut self) {
        let (zone, min) = (self.zone(), self.state.dice.u64(..64));
        let step = self.state.dice.u64(..32);
        let marks = Watermarks { min, low: min + step, high: min + 2 * step };
        let boosts = self.state.dice.bool();
        let (set, _) = self.call(|cpu| {
            if boosts {
                cpu.allocator.set_watermark_boost(zone, step)
            } else {
                cpu.allocator.set_watermarks(zone, marks)
            }
        });
        if !set {
            self.host().ledger.fail("command", format!("watermarks of {zone}"));
        }
    }
}
