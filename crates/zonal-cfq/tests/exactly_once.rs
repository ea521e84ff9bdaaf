//! Every request comes back exactly once, as completed, failed or cancelled, whatever happens in
//! which order: against a ledger that knows what is out. Planted bugs show that the ledger looks.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use zonal_cfq::cfq::{Cfq, Tunables, Weight};
use zonal_cfq::deadline::{self, Deadline};
use zonal_cfq::elevator::{CancelError, Elevator, Limits, Next, Refused};
use zonal_cfq::noop::Noop;
use zonal_cfq::policy::{Choice, Finished, Policy};
use zonal_cfq::request::{Class, Dispatched, Level, Outcome, Part, Priority, Request, Submitted};
use zonal_cfq::table::{Queued, RequestId, Table};
use zonal_cfq::units::{GroupId, Process, Sector, Sectors, Span, Time};

const CAPACITY: Sector = Sector(1 << 14);
const LIMITS: Limits = Limits { longest: Sectors(64), requests: 12 };

#[derive(Clone, Debug)]
struct Ask {
    process: u32,
    start: u64,
    sectors: u32,
    write: bool,
    sync: bool,
    metadata: bool,
    last: bool,
    class: u8,
    level: u8,
    group: u16,
}

#[derive(Clone, Debug)]
enum Step {
    Ask(Ask),
    /// Right behind the request that was asked for last: it may merge.
    Further(u32),
    /// Right before it.
    Before(u32),
    Pass(u64),
    Dispatch,
    Complete(usize, bool),
    Requeue(usize),
    Cancel(usize),
    Exit(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (
        (0u32..5, 0u64..1 << 14, 0u32..70, any::<bool>(), any::<bool>()),
        (any::<bool>(), any::<bool>(), 0u8..3, 0u8..8, 0u16..4),
    );
    let ask = ask.prop_map(|((process, start, sectors, write, sync), flags)| {
        let (metadata, last, class, level, group) = flags;
        Ask { process, start, sectors, write, sync, metadata, last, class, level, group }
    });
    prop_oneof![
        6 => ask.prop_map(Step::Ask),
        4 => (1u32..9).prop_map(Step::Further),
        2 => (1u32..9).prop_map(Step::Before),
        3 => (0u64..20_000_000).prop_map(Step::Pass),
        8 => Just(Step::Dispatch),
        5 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(n, bad)| Step::Complete(n, bad)),
        1 => any::<usize>().prop_map(Step::Requeue),
        3 => any::<usize>().prop_map(Step::Cancel),
        1 => (0u32..5).prop_map(Step::Exit),
    ]
}

/// What is wrong.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// A part came back that is not out, or other than it was asked for.
    NotOut(u64),
    /// A request has gaps, or other bounds than its parts.
    Torn,
    /// Nothing goes, and something is out.
    Stuck(usize),
    /// A count is not what the ledger says.
    Miscounted,
    /// A bad request was taken, a good one refused, or for the wrong reason.
    Judged,
}

/// What was asked for and has not come back: tag, start, length.
#[derive(Default)]
struct Ledger {
    out: BTreeMap<u64, (Sector, Sectors)>,
    asked: u64,
    back: u64,
}

impl Ledger {
    fn ask(&mut self, tag: u64, start: Sector, sectors: Sectors) {
        self.asked += 1;
        self.out.insert(tag, (start, sectors));
    }

    fn back(&mut self, part: &Part) -> Result<(), Fault> {
        let was = self.out.remove(&part.tag).ok_or(Fault::NotOut(part.tag))?;
        self.back += 1;
        if was == (part.start, part.sectors) { Ok(()) } else { Err(Fault::NotOut(part.tag)) }
    }

    fn whole(token: &Dispatched) -> Result<(), Fault> {
        let mut at = token.start();
        for part in token.parts() {
            if part.start != at {
                return Err(Fault::Torn);
            }
            at = part.end();
        }
        if at == token.start() + token.sectors() { Ok(()) } else { Err(Fault::Torn) }
    }
}

struct Run<P> {
    elevator: Elevator<P>,
    ledger: Ledger,
    now: Time,
    tag: u64,
    asked: Ask,
    queued: Vec<Submitted>,
    at_device: Vec<Dispatched>,
    /// A driver that tells of every third completion twice.
    tells_twice: bool,
    groups: u16,
}

impl<P: Policy> Run<P> {
    fn new(policy: P, groups: u16) -> Self {
        let first = Ask {
            process: 0,
            start: 100,
            sectors: 8,
            write: false,
            sync: true,
            metadata: false,
            last: false,
            class: 1,
            level: 4,
            group: 0,
        };
        Self {
            elevator: Elevator::with_limits(policy, CAPACITY, LIMITS),
            ledger: Ledger::default(),
            now: Time::ZERO,
            tag: 0,
            asked: first,
            queued: Vec::new(),
            at_device: Vec::new(),
            tells_twice: false,
            groups,
        }
    }

    fn ask(&mut self, ask: Ask) -> Result<(), Fault> {
        let (start, sectors) = (Sector(ask.start), Sectors(ask.sectors));
        let process = Process(ask.process);
        let mut request = if ask.write {
            Request::write(process, start, sectors)
        } else {
            Request::read(process, start, sectors)
        };
        if ask.sync {
            request = request.sync();
        }
        if ask.metadata {
            request = request.metadata();
        }
        if ask.last {
            request = request.last();
        }
        let class = [Class::RealTime, Class::BestEffort, Class::Idle][usize::from(ask.class)];
        let level = Level::new(ask.level).expect("below 8");
        self.tag += 1;
        let direction = request.direction();
        let request =
            request.priority(Priority { class, level }).group(GroupId(ask.group)).tag(self.tag);
        let full = self.elevator.under_way(direction) >= LIMITS.requests;
        let is_bad = ask.sectors == 0
            || sectors > LIMITS.longest
            || start + sectors > CAPACITY
            || ask.group >= self.groups;
        let before = *self.elevator.counters();
        match self.elevator.submit(self.now, request) {
            Ok(token) if !is_bad => {
                self.ledger.ask(self.tag, start, sectors);
                self.queued.push(token);
                self.asked = ask;
                Ok(())
            }
            // What merges takes no place.
            Err(Refused::Full { .. }) if !is_bad && full => Ok(()),
            Err(Refused::Full { .. }) | Ok(_) => Err(Fault::Judged),
            Err(_) if is_bad && before == *self.elevator.counters() => Ok(()),
            Err(_) => Err(Fault::Judged),
        }
    }

    fn complete(&mut self, at: usize, fails: bool) -> Result<(), Fault> {
        let token = self.at_device.swap_remove(at);
        let outcome = if fails { Outcome::Failed } else { Outcome::Done };
        let done = self.elevator.complete(self.now, token, outcome).expect("it is ours");
        for part in &done.parts {
            self.ledger.back(part)?;
            if self.tells_twice && self.ledger.back.is_multiple_of(3) {
                self.ledger.back(part)?;
            }
        }
        Ok(())
    }

    fn dispatch(&mut self) -> Result<Next, Fault> {
        let next = self.elevator.dispatch(self.now);
        if let Next::Go(token) = &next {
            Ledger::whole(token)?;
        }
        Ok(next)
    }

    fn step(&mut self, step: Step) -> Result<(), Fault> {
        match step {
            Step::Ask(ask) => self.ask(ask)?,
            Step::Further(sectors) => {
                let start = self.asked.start + u64::from(self.asked.sectors);
                self.ask(Ask { start, sectors, ..self.asked.clone() })?;
            }
            Step::Before(sectors) => {
                let start = self.asked.start.saturating_sub(u64::from(sectors));
                let sectors = (self.asked.start - start) as u32;
                self.ask(Ask { start, sectors, ..self.asked.clone() })?;
            }
            Step::Pass(time) => self.now += Span(time),
            Step::Dispatch => {
                if let Next::Go(token) = self.dispatch()? {
                    self.at_device.push(token);
                }
            }
            Step::Complete(at, fails) if !self.at_device.is_empty() => {
                self.complete(at % self.at_device.len(), fails)?;
            }
            Step::Requeue(at) if !self.at_device.is_empty() => {
                let token = self.at_device.swap_remove(at % self.at_device.len());
                self.elevator.requeue(token).expect("it is ours");
            }
            Step::Cancel(at) if !self.queued.is_empty() => {
                let token = self.queued.swap_remove(at % self.queued.len());
                match self.elevator.cancel(self.now, token) {
                    Ok(part) => self.ledger.back(&part)?,
                    Err(CancelError::Gone) => {}
                    Err(_) => return Err(Fault::Judged),
                }
            }
            Step::Exit(process) => self.elevator.exited(self.now, Process(process)),
            Step::Complete(..) | Step::Requeue(_) | Step::Cancel(_) => {}
        }
        self.count()
    }

    fn count(&self) -> Result<(), Fault> {
        let counters = self.elevator.counters();
        let parts: usize = self.at_device.iter().map(|token| token.parts().len()).sum();
        let is_right = counters.submitted == self.ledger.asked
            && self.ledger.asked - self.ledger.back == self.ledger.out.len() as u64
            && parts <= self.ledger.out.len()
            && self.elevator.is_idle() == self.ledger.out.is_empty();
        if is_right { Ok(()) } else { Err(Fault::Miscounted) }
    }

    /// Lets all that is out come back.
    fn drain(&mut self) -> Result<(), Fault> {
        // A wait or two for each request, and a turn, are more than enough.
        for _ in 0..20 * (self.ledger.out.len() + 10) {
            match self.dispatch()? {
                Next::Go(token) => self.at_device.push(token),
                Next::Wait(until) if self.at_device.is_empty() => {
                    self.now = self.now.max(until);
                }
                _ if self.at_device.is_empty() => break,
                _ => self.complete(0, false)?,
            }
        }
        self.count()?;
        if self.ledger.out.is_empty() { Ok(()) } else { Err(Fault::Stuck(self.ledger.out.len())) }
    }
}

fn run<P: Policy>(policy: P, groups: u16, steps: Vec<Step>) -> Result<(), Fault> {
    let mut run = Run::new(policy, groups);
    steps.into_iter().try_for_each(|step| run.step(step))?;
    run.drain()
}

fn cfq(tunables: Tunables) -> Cfq {
    let mut cfq = Cfq::new(tunables);
    for weight in [1000, 100] {
        cfq.add_group(Weight::new(weight).expect("it is one")).expect("there are few");
    }
    cfq
}

/// At least as many queues as there are for async requests.
fn async_queues(steps: &[Step]) -> usize {
    let asked = steps.iter().filter_map(|step| match step {
        Step::Ask(ask) if ask.write && !ask.sync => Some((ask.group, ask.class, ask.level)),
        _ => None,
    });
    asked.collect::<BTreeSet<_>>().len()
}

/// Anything that can be set: what one would set, and what none would.
fn tunables() -> impl Strategy<Value = Tunables> {
    let number = || prop_oneof![0u64..10, 0u64..300_000_000, any::<u64>()];
    let span = move || number().prop_map(Span);
    let small = || prop_oneof![0u32..10, any::<u32>()];
    let flag = any::<bool>;
    let spans = (span(), span(), span(), span(), span(), span(), span());
    let others = (small(), small(), number(), number(), flag(), flag());
    (spans, others).prop_map(|(spans, others)| {
        let (slice_sync, slice_async, slice_idle, group_idle, target_latency, sync, asynchronous) =
            spans;
        let (slice_async_requests, quantum, back_seek_max, back_seek_penalty, low, rotational) =
            others;
        Tunables {
            slice_sync,
            slice_async,
            slice_async_requests,
            slice_idle,
            group_idle,
            target_latency,
            low_latency: low,
            quantum,
            fifo_expire_sync: sync,
            fifo_expire_async: asynchronous,
            back_seek_max,
            back_seek_penalty,
            rotational,
        }
    })
}

/// `ZONAL_TEST_EFFORT` times as many cases.
fn effort() -> u32 {
    std::env::var("ZONAL_TEST_EFFORT").ok().and_then(|it| it.parse().ok()).unwrap_or(1)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400 * effort(),
        // Seeds of failures, kept.
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/exactly_once.proptest-regressions",
        ))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn noop_gives_each_back_once(steps in prop::collection::vec(step(), 0..120)) {
        prop_assert_eq!(run(Noop::default(), 1, steps), Ok(()));
    }

    #[test]
    fn deadline_gives_each_back_once(steps in prop::collection::vec(step(), 0..120)) {
        prop_assert_eq!(run(Deadline::new(deadline::Tunables::default()), 1, steps), Ok(()));
    }

    #[test]
    fn cfq_gives_each_back_once(
        steps in prop::collection::vec(step(), 0..200),
        idle in 0u64..3,
        rotational in any::<bool>(),
        low_latency in any::<bool>(),
    ) {
        let idle = Span::from_millis(idle * 4);
        let tunables = Tunables { slice_idle: idle, rotational, low_latency, ..Tunables::default() };
        let asyncs = async_queues(&steps);
        let mut run = Run::new(cfq(tunables), 3);
        prop_assert_eq!(steps.into_iter().try_for_each(|step| run.step(step)), Ok(()));
        prop_assert_eq!(run.drain(), Ok(()));
        // Nothing is left of processes that are gone, but perhaps the queue whose turn it is.
        (0..5).for_each(|process| run.elevator.exited(run.now, Process(process)));
        prop_assert!(run.elevator.policy().queues() <= asyncs + 1);
    }

    #[test]
    fn cfq_gives_each_back_once_whatever_is_set(
        steps in prop::collection::vec(step(), 0..200),
        tunables in tunables(),
    ) {
        prop_assert_eq!(run(cfq(tunables), 3, steps), Ok(()));
    }
}

/// What a policy does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// It forgets every fifth request.
    Forgets,
    /// It never lets a write go.
    Holds,
}

/// A policy with a planted bug.
struct Broken<P>(P, Bug, u64);

impl<P: Policy> Policy for Broken<P> {
    fn name(&self) -> &'static str {
        "broken"
    }
    fn may_join(&self, _: &Queued, _: &Request) -> bool {
        false
    }
    fn may_coalesce(&self, _: &Queued, _: &Queued) -> bool {
        false
    }
    fn insert(&mut self, table: &mut Table, id: RequestId, now: Time) {
        self.2 += 1;
        if self.1 == Bug::Holds || !self.2.is_multiple_of(5) {
            self.0.insert(table, id, now);
        }
    }
    fn withdraw(&mut self, table: &mut Table, id: RequestId, now: Time) {
        self.0.withdraw(table, id, now);
    }
    fn next(&mut self, table: &mut Table, now: Time) -> Choice {
        if self.1 == Bug::Holds && self.2 > 3 {
            return Choice::Hold;
        }
        self.0.next(table, now)
    }
    fn completed(&mut self, finished: &Finished, now: Time) {
        self.0.completed(finished, now);
    }
}

fn six_reads() -> Vec<Step> {
    let ask = |start| Ask { start, ..Run::new(Noop::default(), 1).asked };
    (0..6).map(|it| Step::Ask(ask(it * 1000))).collect()
}

#[test]
fn planted_bugs_are_found() {
    let broken = |bug| run(Broken(Noop::default(), bug, 0), 1, six_reads());
    assert_eq!(broken(Bug::Forgets), Err(Fault::Stuck(1)));
    assert_eq!(broken(Bug::Holds), Err(Fault::Stuck(6)));
    let mut twice = Run::new(Noop::default(), 1);
    twice.tells_twice = true;
    let found = six_reads().into_iter().try_for_each(|step| twice.step(step));
    let found = found.and_then(|()| twice.drain());
    assert!(matches!(found, Err(Fault::NotOut(_))), "{found:?}");
    assert_eq!(run(Noop::default(), 1, six_reads()), Ok(()));
    let mut lax = Run::new(Noop::default(), 1);
    lax.groups = 2;
    assert_eq!(lax.ask(Ask { group: 1, ..lax.asked.clone() }), Err(Fault::Judged));
}

#[test]
fn tokens_of_another_elevator_come_back_and_change_nothing() {
    let make = || Elevator::new(Noop::default(), CAPACITY);
    let (mut one, mut other) = (make(), make());
    let read = || Request::read(Process(1), Sector(0), Sectors(8)).tag(5);
    let submitted = one.submit(Time(0), read()).expect("it is good");
    other.submit(Time(0), read()).expect("it is good");
    let Err(CancelError::Foreign(submitted)) = other.cancel(Time(1), submitted) else {
        panic!("it is none of its")
    };
    let Next::Go(token) = one.dispatch(Time(2)) else { panic!("there is one") };
    let before = *other.counters();
    let token = other.complete(Time(3), token, Outcome::Done).expect_err("it is none of its").0;
    let token = other.requeue(token).expect_err("it is none of its").0;
    assert_eq!((*other.counters(), other.queued()), (before, 1));
    assert_eq!(one.cancel(Time(3), submitted), Err(CancelError::Gone));
    assert_eq!(one.complete(Time(4), token, Outcome::Failed).expect("its own").parts[0].tag, 5);
    assert_eq!(one.counters().failed, 1);
}

#[test]
fn what_is_left_of_a_merged_request_stays() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    let mut tokens = Vec::new();
    for part in 0..4 {
        let request = Request::read(Process(1), Sector(part * 8), Sectors(8)).tag(part);
        tokens.push(elevator.submit(Time(0), request).expect("it is good"));
    }
    assert_eq!(elevator.queued(), 1);
    let cut = elevator.cancel(Time(1), tokens.swap_remove(1)).expect("it is queued");
    assert_eq!((cut.tag, elevator.queued()), (1, 2));
    let Next::Go(first) = elevator.dispatch(Time(2)) else { panic!("there are two") };
    assert_eq!((first.start(), first.sectors()), (Sector(0), Sectors(8)));
    let Next::Go(second) = elevator.dispatch(Time(2)) else { panic!("there is one more") };
    assert_eq!((second.start(), second.sectors()), (Sector(16), Sectors(16)));
    for token in [first, second] {
        elevator.complete(Time(3), token, Outcome::Done).expect("its own");
    }
}
