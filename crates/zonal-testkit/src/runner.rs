//! Runs commands on a world and its model, with every checker after every step.
//!
//! ```
//! use zonal_testkit::command::{Ask, Command};
//! use zonal_testkit::preset::TinyZonal;
//! use zonal_testkit::probe::Probe;
//! use zonal_testkit::runner::run_commands;
//! use zonal_testkit::shape::Shape;
//! let commands = [Command::Fill { ask: Ask::FRAME, spare: 9 }, Command::DrainAll];
//! run_commands::<Probe, TinyZonal>(Shape::TwoNodes, &commands).unwrap();
//! ```

mod pages;
mod requests;
mod zeroes;

use crate::checkers::{Checked, Rules, Violation, check_all, check_faults};
use crate::cluster_check::check_clusters;
use crate::command::{Ask, Command, as_source};
use crate::host::TestHost;
use crate::model::Model;
use crate::shape::Shape;
use crate::snapshot::Snapshot;
use crate::world::{World, with_world};
use std::fmt;
use std::ops::Range;
use zonal::error::OnlineError;
use zonal::map::RangeKind;
use zonal::policy::Policy;
use zonal::watermark::Watermarks;
use zonal::{BulkFreed, CpuHandle, CpuId, FreeError, NodeId, Order, Pfn, ZoneId};

/// A violation, and how to see it again.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong.
    pub violation: Violation,
    /// How many commands it took; all of them and one more if it was found at the end.
    pub step: usize,
    /// The commands up to there, as the source of a test.
    pub source: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}\n\n{}", self.step, self.violation, self.source)
    }
}

impl std::error::Error for Failure {}

/// Runs commands on a fresh world; at its end frees and drains everything.
///
/// # Errors
/// The first violation.
pub fn run_commands<P: TestHost, S: Policy>(
    shape: Shape,
    commands: &[Command],
) -> Result<(), Box<Failure>> {
    run_with_rules::<P, S>(shape, commands, Rules::of::<S>())
}

/// As [`run_commands`], under other rules than those that the preset states.
///
/// # Errors
/// The first violation.
pub fn run_with_rules<P: TestHost, S: Policy>(
    shape: Shape,
    commands: &[Command],
    rules: Rules,
) -> Result<(), Box<Failure>> {
    with_world::<P, S, _>(shape, |world| {
        let mut runner = Runner::new(world, rules);
        let steps = commands.iter().map(Some).chain([None]);
        for (step, command) in steps.enumerate() {
            let checked = match command {
                Some(command) => runner.step(command),
                None => runner.finish(),
            };
            checked.map_err(|violation| {
                let done = &commands[..commands.len().min(step + 1)];
                Box::new(Failure {
                    violation,
                    step: step + 1,
                    source: as_source(S::NAME, shape, done),
                })
            })?;
        }
        Ok(())
    })
}

/// A world, its model, and who runs where.
pub struct Runner<'w, 'm, P: TestHost, S: Policy> {
    world: &'w World<'m, P, S>,
    model: Model<'m>,
    rules: Rules,
    handles: Vec<Option<CpuHandle<'w, 'm, P, S>>>,
    cpu: CpuId,
    pledged: Vec<Pfn>,
    last: Snapshot,
}

impl<'w, 'm, P: TestHost, S: Policy> Runner<'w, 'm, P, S> {
    /// Starts on CPU 0.
    #[must_use]
    pub fn new(world: &'w World<'m, P, S>, rules: Rules) -> Self {
        let allocator = &world.allocator;
        allocator.platform().switch_cpu(CpuId(0));
        Self {
            world,
            model: Model::new(allocator.plan()),
            rules,
            handles: (0..allocator.cpus()).map(|_| None).collect(),
            cpu: CpuId(0),
            pledged: Vec::new(),
            last: Snapshot::of(allocator),
        }
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &Model<'m> {
        &self.model
    }

    /// The snapshot after the last step.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.last
    }

    /// Does one thing and checks everything.
    ///
    /// # Errors
    /// The first violation.
    pub fn step(&mut self, command: &Command) -> Checked {
        self.act(command)?;
        self.check()
    }

    /// Frees and drains everything and checks that all is there.
    ///
    /// # Errors
    /// The first violation.
    pub fn finish(&mut self) -> Checked {
        self.free_all()?;
        self.handles.iter_mut().for_each(|handle| *handle = None);
        self.world.allocator.drain_all();
        self.check()?;
        let free: u64 = self.last.zones.iter().map(|zone| zone.free).sum();
        let pledged: u64 = self.model.iter().map(|(_, order)| order.frames()).sum();
        if free + pledged != self.model.managed() {
            return Err(Violation {
                rule: "I-2",
                detail: format!("{free} frames are free after everything was freed and drained"),
            });
        }
        Ok(())
    }

    fn check(&mut self) -> Checked {
        self.note_redeemed();
        check_faults(&self.world.allocator.platform().faults())?;
        self.last = Snapshot::of(&self.world.allocator);
        check_all(&self.last, &self.model, &self.rules)?;
        check_clusters(&self.world.allocator)
    }

    /// Takes what the host freed out of the model.
    fn note_redeemed(&mut self) {
        for (pfn, _) in self.world.allocator.platform().redeemed() {
            self.model.remove(pfn);
            self.pledged.retain(|&other| other != pfn);
        }
    }

    fn node(&self) -> NodeId {
        self.world.allocator.platform().node_of_cpu(self.cpu)
    }

    fn handle(&mut self) -> Option<&mut CpuHandle<'w, 'm, P, S>> {
        self.handles.get_mut(self.cpu.0 as usize)?.as_mut()
    }

    fn act(&mut self, command: &Command) -> Checked {
        let allocator = &self.world.allocator;
        let cpu_of = |cpu: u8| CpuId(u32::from(cpu) % allocator.cpus());
        let zone_of = |zone: u8| ZoneId((usize::from(zone) % allocator.zone_count()) as u8);
        match *command {
            Command::Alloc(ask) => self.alloc(ask).map(|_| ()),
            Command::Free { nth } => self.free_nth(usize::from(nth)),
            Command::FreeAny { frame, order } => {
                let first = self.model.plan().base().get().saturating_sub(16);
                let span = self.model.plan().frames() + 32;
                self.free_wrongly(Pfn::new(first + u64::from(frame) % span), order)
            }
            Command::FreePart { nth, inner, order } => match self.model.nth(usize::from(nth)) {
                Some((pfn, size)) => {
                    let inner = u64::from(inner) % size.frames();
                    self.free_wrongly(Pfn::new(pfn.get() + inner), order)
                }
                None => Ok(()),
            },
            Command::AllocBulk { ask, count } => self.alloc_bulk(ask, usize::from(count)),
            Command::FreeBulk { nth, count, twice } => {
                self.free_bulk(usize::from(nth), usize::from(count), twice)
            }
            Command::Fill { ask, spare } => self.fill(ask, spare),
            Command::FreeAll => self.free_all(),
            Command::DrainCpu { cpu } => self.drain_cpu(cpu_of(cpu)),
            Command::DrainAll => self.drain_all(),
            Command::SwitchCpu { cpu } => {
                if allocator.platform().switch_cpu(cpu_of(cpu)) {
                    self.cpu = cpu_of(cpu);
                }
                Ok(())
            }
            Command::Own { cpu, on } => {
                let slot = cpu_of(cpu).0 as usize;
                self.handles[slot] = None;
                if on {
                    self.handles[slot] = allocator.handle(cpu_of(cpu)).ok();
                }
                Ok(())
            }
            Command::SetWatermarks { zone, min, step } => {
                let (min, step) = (u64::from(min), u64::from(step));
                let marks = Watermarks { min, low: min + step, high: min + 2 * step };
                expect(allocator.set_watermarks(zone_of(zone), marks), "watermarks can be set")
            }
            Command::Boost { zone, frames } => {
                let set = allocator.set_watermark_boost(zone_of(zone), u64::from(frames));
                expect(set, "a boost can be set")
            }
            Command::Online { nth, count } => match self.later(nth, count) {
                Some(range) => self.online(&range),
                None => Ok(()),
            },
            Command::Offline { nth, count } => match self.later(nth, count) {
                Some(range) => self.offline(&range),
                None => Ok(()),
            },
            Command::AllocPages { .. }
            | Command::FreePages { .. }
            | Command::AllocAt { .. }
            | Command::Release { .. } => self.act_on_pages(command),
            Command::Pledge { nth } => {
                self.pledge(usize::from(nth));
                Ok(())
            }
        }
    }

    fn pledge(&mut self, nth: usize) {
        if let Some((pfn, order)) = self.model.nth(nth)
            && !self.pledged.contains(&pfn)
            && self.world.allocator.platform().pledge(pfn, order)
        {
            self.pledged.push(pfn);
        }
    }

    /// Pageblocks of one range of the map that may come later.
    fn later(&self, nth: u8, count: u8) -> Option<Range<Pfn>> {
        let plan = self.model.plan();
        let size = plan.config().pageblock_order.frames();
        let later = || plan.map().ranges().iter().filter(|r| r.kind == RangeKind::Offline);
        let all = later().map(|range| range.frames() / size).sum::<u64>();
        let mut nth = u64::from(nth).checked_rem(all)?;
        for range in later() {
            let pageblocks = range.frames() / size;
            if nth < pageblocks {
                let count = u64::from(count).clamp(1, pageblocks - nth);
                let start = range.start.get() + nth * size;
                return Some(Pfn::new(start)..Pfn::new(start + count * size));
            }
            nth -= pageblocks;
        }
        None
    }

    fn online(&mut self, range: &Range<Pfn>) -> Checked {
        let size = self.model.plan().config().pageblock_order.frames();
        let mut pageblocks = (range.start.get()..range.end.get()).step_by(size as usize);
        let come = pageblocks.find(|&at| self.model.is_online(Pfn::new(at)));
        let frames = range.end.get() - range.start.get();
        let expected = match come {
            Some(at) => Err(OnlineError::Online { pfn: Pfn::new(at) }),
            None => Ok(frames),
        };
        let got = self.world.allocator.online(range.clone()).map(|onlined| onlined.frames);
        if got != expected {
            let detail = format!("online of {range:?}: {got:?}, not {expected:?}");
            return Err(Violation { rule: "command", detail });
        }
        match got {
            Ok(_) => self.model.bring_online(range),
            Err(_) => self.check_unchanged()?,
        }
        Ok(())
    }

    /// The host moves nothing: only what is free can go, and then it does.
    fn offline(&mut self, range: &Range<Pfn>) -> Checked {
        let size = self.model.plan().config().pageblock_order.frames();
        let pageblocks = (range.start.get()..range.end.get()).step_by(size as usize);
        let online = pageblocks.map(Pfn::new).all(|at| self.model.is_online(at));
        let of_range = |&(pfn, order): &(Pfn, Order)| {
            pfn < range.end && pfn.get() + order.frames() > range.start.get()
        };
        let used = self.model.iter().any(|block| of_range(&block));
        let got = self.world.allocator.offline(range.clone());
        if got.is_ok() != (online && !used) {
            let detail = format!("offline of {range:?}, online {online}, used {used}: {got:?}");
            return Err(Violation { rule: "command", detail });
        }
        if got.is_ok() {
            self.model.take_offline(range);
        }
        Ok(())
    }

    fn free_here(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        match self.handle() {
            Some(handle) => handle.free_raw(pfn, order),
            None => self.world.allocator.free_raw(pfn, order),
        }
    }

    fn fill(&mut self, ask: Ask, spare: u8) -> Checked {
        while self.alloc(ask)? {}
        for nth in 0..usize::from(spare).min(self.model.len()) {
            self.free_nth(nth * 7)?;
        }
        Ok(())
    }

    fn free_all(&mut self) -> Checked {
        let out: Vec<_> = self.model.iter().map(|(pfn, _)| pfn).collect();
        for pfn in out.into_iter().filter(|pfn| !self.pledged.contains(pfn)).collect::<Vec<_>>() {
            self.free_block(pfn)?;
        }
        Ok(())
    }

    fn free_nth(&mut self, nth: usize) -> Checked {
        match self.model.nth(nth) {
            Some((pfn, _)) if !self.pledged.contains(&pfn) => self.free_block(pfn),
            _ => Ok(()),
        }
    }

    /// Frees a block that is out.
    fn free_block(&mut self, pfn: Pfn) -> Checked {
        let Some((_, order)) = self.model.containing(pfn) else { return Ok(()) };
        match self.free_here(pfn, order) {
            Ok(()) => {
                self.model.remove(pfn);
                Ok(())
            }
            Err(error) => Err(Violation { rule: "I-4", detail: format!("a good free: {error}") }),
        }
    }

    /// Frees what the model most likely does not know, and compares the answer (I-4).
    fn free_wrongly(&mut self, pfn: Pfn, order: u8) -> Checked {
        let order = Order::new(order % 11).unwrap_or(Order::ZERO);
        if self.pledged.contains(&pfn) {
            return Ok(());
        }
        let (expected, got) = (self.model.verdict(pfn, order), self.free_here(pfn, order));
        if got != expected {
            let detail = format!("free of pfn {pfn} (order {order}): {got:?}, not {expected:?}");
            return Err(Violation { rule: "I-4", detail });
        }
        if got.is_ok() {
            self.model.remove(pfn);
            return Ok(());
        }
        self.check_unchanged()
    }

    /// Nothing but the histogram of lock holds is as before.
    fn check_unchanged(&self) -> Checked {
        let now = Snapshot::of(&self.world.allocator);
        let same = now.without_holds() == self.last.without_holds();
        expect(same, "what is refused changes nothing")
    }

    fn free_bulk(&mut self, first: usize, count: usize, twice: bool) -> Checked {
        let count = count.min(self.model.len());
        let nth = |nth| self.model.nth(first + nth).map(|(pfn, _)| pfn);
        let own = (0..count).filter_map(nth).filter(|pfn| !self.pledged.contains(pfn));
        let mut frames: Vec<Pfn> = own.collect();
        if twice {
            frames.extend(frames.first().copied());
        }
        let mut expected = BulkFreed::default();
        for (at, &pfn) in frames.iter().enumerate() {
            match self.model.verdict(pfn, Order::ZERO) {
                Ok(()) => {
                    self.model.remove(pfn);
                    expected.freed += 1;
                }
                Err(error) => {
                    expected.refused += 1;
                    expected.first_refused.get_or_insert((at, error));
                }
            }
        }
        let got = match self.handle() {
            Some(handle) => handle.free_bulk(&frames),
            None => self.world.allocator.free_bulk(&frames),
        };
        if got != expected {
            let detail = format!("bulk free of {frames:?}: {got:?}, not {expected:?}");
            return Err(Violation { rule: "I-4", detail });
        }
        Ok(())
    }

    fn drain_cpu(&mut self, cpu: CpuId) -> Checked {
        let allocator = &self.world.allocator;
        let of_cpu = |snapshot: &Snapshot| -> u64 {
            let caches = snapshot.caches.iter().filter(|(_, cache)| cache.cpu == cpu);
            caches.map(|(_, cache)| cache.count).sum()
        };
        let (cached, given) = (of_cpu(&self.last), allocator.drain_cpu(cpu));
        expect(given == cached, "draining a CPU gives back what it cached")?;
        expect(of_cpu(&Snapshot::of(allocator)) == 0, "a drained CPU caches nothing")
    }

    fn drain_all(&mut self) -> Checked {
        let hidden =
            |snapshot: &Snapshot| -> u64 { snapshot.zones.iter().map(|zone| zone.cached).sum() };
        let (before, given) = (hidden(&self.last), self.world.allocator.drain_all());
        expect(given == before, "draining gives back what was cached")?;
        let after = Snapshot::of(&self.world.allocator);
        expect(hidden(&after) == 0, "after draining nothing is cached")?;
        let counted = after.zones.iter().all(|zone| zone.counted_free == zone.free);
        expect(counted, "after draining all that is free is counted")
    }
}

fn expect(holds: bool, what: &str) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Violation { rule: "command", detail: format!("not so: {what}") })
    }
}
