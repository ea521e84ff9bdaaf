//! Reclaim in the background, a task with a step at a time. It sleeps until a request finds no zone
//! above its low watermark. Then it frees pages, from the lowest zone up, until every zone is above
//! its high watermark, and naps for 100 ms; if a zone is below its high watermark after that, it goes
//! on, and only otherwise falls asleep. So once woken it can keep the first zone above its low
//! watermark by naps alone, and requests that take the first zone that will do never come to the
//! second: how unfair first fit is follows from how much is taken during a nap.
//!
//! What 3.0 and 3.16 differ in:
//!
//! | | 3.0 | 3.16 |
//! |---|---|---|
//! | looks harder | never while something is freed: each pass begins with a 4096th of the lists | when a pass looked at less than the high watermark in every zone that needs it, or freed nothing |
//! | is done | when all zones up to the highest that needs it are above high, with what is kept from the highest | without that |
//! | waits | 100 ms after the fourth pass in a row that freed little, and after each further one | 100 ms if pages on their way to the disk come round again |

use zonal_cfq::units::{Span, Time};

use crate::kernel::Reclaim;

use super::{Memory, Shrunk, ZoneName};

/// A pass looks at one page in 2 to this of a list at first.
pub(super) const PRIORITY: u32 = 12;
/// Pages that are freed at once.
pub(super) const SWAP_CLUSTER: u64 = 32;
/// Pages between which other tasks may come in.
const STEP: u64 = 64;
/// The nap, and the wait for the disk.
const NAP: Span = Span::from_millis(100);

const UP: [ZoneName; 2] = [ZoneName::Dma32, ZoneName::Normal];

/// What the task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It looked at this many pages and goes on.
    Work(u64),
    /// It goes on at that time, if it is not woken before.
    Nap(Time),
    /// It goes on at that time.
    Wait(Time),
    /// It is asleep until it is woken.
    Asleep,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    priority: u32,
    /// The highest zone that needs it, as an index of [`UP`].
    highest: usize,
    /// The zone that it is at, and what it is to look at there.
    at: usize,
    todo: u64,
    begun: bool,
    /// Looked at in this zone.
    scanned: u64,
    freed: u64,
    /// Whether no zone was looked at enough.
    is_little: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Asleep,
    Napping(Time),
    Waiting(Time),
    Awake(Option<Pass>),
}

/// The task.
#[derive(Debug)]
pub struct Kswapd {
    state: State,
    /// Times that it was woken from sleep or nap.
    pub woken: u64,
    /// Times that it went on after a nap.
    pub went_on: u64,
}

impl Default for Kswapd {
    fn default() -> Self {
        Self { state: State::Asleep, woken: 0, went_on: 0 }
    }
}

impl Kswapd {
    /// Wakes it; whether it was asleep or napping.
    pub const fn wake(&mut self) -> bool {
        let rests = matches!(self.state, State::Asleep | State::Napping(_));
        if rests {
            self.woken += 1;
            self.state = State::Awake(None);
        }
        rests
    }

    /// Does its next step.
    pub fn step(&mut self, memory: &mut Memory, now: Time) -> Step {
        match self.state {
            State::Asleep => return Step::Asleep,
            State::Napping(until) if now < until => return Step::Nap(until),
            State::Waiting(until) if now < until => return Step::Wait(until),
            State::Napping(_) => {
                if memory.is_balanced() {
                    self.state = State::Asleep;
                    return Step::Asleep;
                }
                self.went_on += 1;
                self.state = State::Awake(None);
            }
            State::Waiting(_) => self.state = State::Awake(None),
            State::Awake(_) => {}
        }
        let State::Awake(pass) = self.state else { return Step::Asleep };
        let mut pass = match pass {
            Some(pass) => pass,
            None => match Pass::new(memory, PRIORITY) {
                Some(pass) => pass,
                None => return self.nap(now),
            },
        };
        let step = pass.step(memory);
        if step.immediate > 0 {
            self.state = State::Waiting(now + NAP);
            return Step::Wait(now + NAP);
        }
        if !pass.is_over() {
            self.state = State::Awake(Some(pass));
            return Step::Work(step.scanned);
        }
        let next = pass.next(memory);
        if memory.is_balanced_for(pass.highest) {
            return self.nap(now);
        }
        // All priorities are through.
        let Some((priority, waits)) = next else {
            self.state = State::Waiting(now + NAP);
            return Step::Wait(now + NAP);
        };
        self.state = State::Awake(Pass::new(memory, priority));
        if waits {
            self.state = State::Waiting(now + NAP);
            return Step::Wait(now + NAP);
        }
        Step::Work(step.scanned)
    }

    fn nap(&mut self, now: Time) -> Step {
        self.state = State::Napping(now + NAP);
        Step::Nap(now + NAP)
    }
}

impl Pass {
    /// A pass over the zones up to the highest that is below its high watermark; none if none is.
    fn new(memory: &Memory, priority: u32) -> Option<Self> {
        let needs = |name: &ZoneName| {
            let zone = memory.zone(*name);
            !zone.is_above(zone.high, false)
        };
        let highest = UP.iter().rposition(needs)?;
        Some(Self { priority, highest, is_little: true, ..Self::default() })
    }

    const fn is_over(&self) -> bool {
        self.at > self.highest
    }

    /// Looks at some pages of the zone that it is at.
    fn step(&mut self, memory: &mut Memory) -> Shrunk {
        let name = UP[self.at];
        if !self.begun {
            self.begun = true;
            self.scanned = 0;
            let zone = memory.zone(name);
            let could = UP[self.highest] != name;
            if zone.is_above(zone.high + zone.gap, could) {
                // It has plenty, and is no reason to look harder.
                self.is_little = false;
                self.leave();
                return Shrunk::default();
            }
            let active = memory.deactivate(name, self.priority);
            self.todo = memory.inactive(name) >> self.priority;
            self.scanned = active;
        }
        let shrunk = memory.shrink(name, self.todo.min(STEP));
        self.todo -= self.todo.min(STEP);
        self.scanned += shrunk.scanned;
        self.freed += shrunk.freed;
        if self.todo == 0 || shrunk.scanned == 0 {
            self.is_little &= self.scanned < memory.zone(name).high;
            self.leave();
        }
        shrunk
    }

    const fn leave(&mut self) {
        self.at += 1;
        self.begun = false;
    }

    /// The next pass's priority, and whether the disk is waited for before; `None` if there is none
    /// left.
    fn next(&self, memory: &Memory) -> Option<(u32, bool)> {
        match memory.rules() {
            Reclaim::V3_0 if self.freed >= SWAP_CLUSTER => Some((PRIORITY, false)),
            Reclaim::V3_0 => {
                let waits = self.priority < PRIORITY - 2;
                self.priority.checked_sub(1).map(|priority| (priority, waits))
            }
            Reclaim::V3_16 => {
                let harder = self.is_little || self.freed == 0;
                let priority = self.priority - u32::from(harder);
                (priority >= 1).then_some((priority, false))
            }
        }
    }
}

impl Memory {
    const fn rules(&self) -> Reclaim {
        self.kernel.reclaim
    }

    /// Whether reclaim may sleep.
    pub(super) fn is_balanced(&self) -> bool {
        self.is_balanced_for(1)
    }

    /// Whether all zones are above their high watermarks. 3.0 asks for what is kept from the highest
    /// of them, too.
    fn is_balanced_for(&self, highest: usize) -> bool {
        UP.iter().enumerate().all(|(at, name)| {
            let zone = self.zone(*name);
            let could = self.rules() == Reclaim::V3_0 && at < highest;
            zone.is_above(zone.high, could)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::machine::MACHINES;

    fn full(kernel: &str) -> Memory {
        let kernel = Kernel::named(kernel).expect("it is in the tables");
        let mut memory = Memory::new(&MACHINES[0], &kernel, 1 << 21);
        for page in 0.. {
            memory.allocate(page, false).expect("there is room down to the low watermarks");
            if memory.takes_wish() {
                return memory;
            }
        }
        memory
    }

    /// Steps until it rests.
    fn rest(kswapd: &mut Kswapd, memory: &mut Memory, now: Time) -> (Step, u64) {
        let mut scanned = 0;
        loop {
            match kswapd.step(memory, now) {
                Step::Work(pages) => scanned += pages,
                step => return (step, scanned),
            }
        }
    }

    #[test]
    fn it_frees_to_the_high_watermarks_naps_and_sleeps() {
        for kernel in ["3.0", "3.16-rc1", "fairzone"] {
            let mut memory = full(kernel);
            let mut kswapd = Kswapd::default();
            assert_eq!(kswapd.step(&mut memory, Time(0)), Step::Asleep);
            assert!(kswapd.wake() && !kswapd.wake());
            let (step, scanned) = rest(&mut kswapd, &mut memory, Time(0));
            assert_eq!(step, Step::Nap(Time(0) + NAP), "{kernel}");
            assert!(scanned > 1000 && memory.is_balanced(), "{kernel} {scanned}");
            let (step, scanned) = rest(&mut kswapd, &mut memory, Time(0) + NAP);
            assert_eq!((step, scanned), (Step::Asleep, 0), "{kernel}");
        }
    }

    /// What is taken during a nap is given back after it, without anyone asking.
    #[test]
    fn it_goes_on_after_a_nap_and_first_fit_stays_with_the_first_zone() {
        let mut memory = full("3.0");
        let mut kswapd = Kswapd::default();
        kswapd.wake();
        let mut now = Time(0);
        rest(&mut kswapd, &mut memory, now);
        let before = memory.zone(ZoneName::Dma32).allocated;
        let mut page = memory.zones.iter().map(|zone| zone.allocated).sum::<u64>() as u32;
        for _ in 0..50 {
            for _ in 0..2000 {
                memory.allocate(page, false).expect("there is room");
                page += 1;
            }
            now += NAP;
            rest(&mut kswapd, &mut memory, now);
        }
        assert!(!memory.takes_wish(), "it was woken by its nap alone");
        assert!(kswapd.went_on > 10);
        assert_eq!(memory.zone(ZoneName::Dma32).allocated, before);
    }

    #[test]
    fn pages_that_are_not_clean_are_not_freed() {
        for kernel in ["3.0", "3.16-rc1"] {
            let mut memory = full(kernel);
            let oldest = |memory: &Memory| memory.pages.oldest(ZoneName::Normal, 0).expect("full");
            let dirty = oldest(&memory);
            memory.set_dirty(dirty);
            memory.shrink(ZoneName::Normal, 1);
            assert!(memory.is_cached(dirty), "{kernel}");
            assert_eq!(memory.pageouts == [dirty], kernel == "3.0");
            assert!(memory.pressed);
            let locked = oldest(&memory);
            memory.set_locked(locked, true);
            assert_eq!(memory.shrink(ZoneName::Normal, 1).freed, 0);
            assert_eq!(memory.shrink(ZoneName::Normal, 1).freed, 1);
        }
    }
}
