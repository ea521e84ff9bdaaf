//! What CFQ does by what processes are in the habit of, where deadline begins, and what the elevator
//! merges. One request at a time, 1 ms each.

use std::collections::BTreeMap;

use zonal_cfq::cfq::{Cfq, CfqCounters, Tunables};
use zonal_cfq::deadline::{self, Deadline};
use zonal_cfq::elevator::{Elevator, Next};
use zonal_cfq::policy::Policy;
use zonal_cfq::request::{Class, Direction, Level, Outcome, Priority, Request};
use zonal_cfq::units::{Process, Sector, Sectors, Span, Time};

const SERVICE: Span = Span::from_millis(1);
const CAPACITY: Sector = Sector(1 << 40);

/// A process: the next sector from the number of its request, and how long it thinks.
struct Reader {
    at: Box<dyn Fn(u64) -> Sector>,
    think: Span,
    asked: u64,
}

fn reader(think: Span, at: impl Fn(u64) -> Sector + 'static) -> Reader {
    Reader { at: Box::new(at), think, asked: 0 }
}

/// Reads of 64 KiB, from a place on.
fn stream(think: Span, from: u64) -> Reader {
    reader(think, move |count| Sector(from + count * 128))
}

const SOON: Span = Span::from_micros(50);

/// Runs readers for so long.
fn run(tunables: Tunables, mut readers: Vec<Reader>, millis: u64) -> (CfqCounters, Elevator<Cfq>) {
    let mut elevator = Elevator::new(Cfq::new(tunables), CAPACITY);
    let mut now = Time::ZERO;
    let mut asks: BTreeMap<(Time, u64), usize> = BTreeMap::new();
    let mut order = 0;
    for process in 0..readers.len() {
        asks.insert((Time::ZERO, process as u64), process);
    }
    let mut ask =
        |elevator: &mut Elevator<Cfq>, asks: &mut BTreeMap<(Time, u64), usize>, until: Time| {
            while let Some((&(at, order), &process)) = asks.first_key_value() {
                if at > until {
                    break;
                }
                asks.remove(&(at, order));
                let reader = &mut readers[process];
                let start = (reader.at)(reader.asked);
                reader.asked += 1;
                let request = Request::read(Process(process as u32), start, Sectors(128));
                elevator.submit(at, request).expect("it is good");
            }
            readers.iter().map(|reader| reader.think).collect::<Vec<_>>()
        };
    while now < Time::ZERO + Span::from_millis(millis) {
        let thinks = ask(&mut elevator, &mut asks, now);
        let next = asks.first_key_value().map(|((at, _), _)| *at);
        match elevator.dispatch(now) {
            Next::Go(token) => {
                now += SERVICE;
                ask(&mut elevator, &mut asks, now);
                for part in elevator.complete(now, token, Outcome::Done).expect("ours").parts {
                    let process = part.process.0 as usize;
                    order += 1;
                    asks.insert((now + thinks[process], 1000 + order), process);
                }
            }
            Next::Wait(until) => now = next.map_or(until, |at| at.min(until)),
            Next::Hold | Next::Nothing => now = next.expect("all wait for none"),
        }
    }
    (*elevator.policy().counters(), elevator)
}

/// Turns are slices, as computed by hand: 16 readers at 300 ms have 18.75 ms, at 600 ms 37.5.
#[test]
fn turns_are_as_long_as_slices_by_hand() {
    for (target, readers, slice) in
        [(300, 2, 100.0), (300, 4, 75.0), (300, 8, 37.5), (300, 16, 18.75), (600, 16, 37.5)]
    {
        let streams = (0..readers).map(|it| stream(SOON, it << 32)).collect();
        let tunables =
            Tunables { target_latency: Span::from_millis(target), ..Tunables::default() };
        let (counters, _) = run(tunables, streams, 30_000);
        let turn = 30_000.0 / counters.turns as f64;
        assert!(is_slice(turn, slice), "{target} {readers}: {turn}");
    }
    // The bug that this is to find: slices that do not shrink.
    let streams = (0..16).map(|it| stream(SOON, it << 32)).collect();
    let tunables = Tunables { low_latency: false, ..Tunables::default() };
    let turn = 30_000.0 / run(tunables, streams, 30_000).0.turns as f64;
    assert!(is_slice(turn, 100.0) && !is_slice(turn, 18.75), "{turn}");
}

/// A turn is a first request of 1 ms, a slice, and up to one that is under way when that ends.
fn is_slice(turn: f64, slice: f64) -> bool {
    (slice + 0.9..slice + 2.3).contains(&turn)
}

#[test]
fn a_process_that_thinks_long_is_not_waited_for() {
    let with = |think| {
        let readers = vec![stream(think, 0), stream(SOON, 1 << 32)];
        let (counters, elevator) = run(Tunables::default(), readers, 10_000);
        (counters.waits_in_vain, elevator.counters().reads.completed)
    };
    let (short, _) = with(Span::from_millis(4));
    let (long, done) = with(Span::from_millis(40));
    assert_eq!(short, 0);
    // Until there are enough samples, and no longer.
    assert!(long < 10, "{long}");
    assert!(done > 8_000, "{done}");
    let never = Tunables { slice_idle: Span::ZERO, group_idle: Span::ZERO, ..Tunables::default() };
    let (counters, _) = run(never, vec![stream(SOON, 0), stream(SOON, 1 << 32)], 1_000);
    assert_eq!(counters.waits, 0);
}

#[test]
fn processes_that_seek_are_waited_for_together_only() {
    let anywhere = |seed: u64| {
        reader(SOON, move |count| {
            Sector((count * 7_919 + seed).wrapping_mul(0x9e37_79b9) % (1 << 39))
        })
    };
    let (counters, elevator) =
        run(Tunables::default(), vec![anywhere(1), anywhere(2), anywhere(3)], 10_000);
    let done = elevator.counters().reads.completed;
    assert!(done > 9_000, "{done}: the device is hardly kept waiting");
    assert!(counters.turns > done / 2, "{counters:?}: each request is a turn");
}

#[test]
fn processes_that_read_the_same_place_share_a_queue_until_they_part() {
    // Both read every other 64 KiB of one file; later each a file of its own, here and there.
    let part = |own: u64| {
        reader(SOON, move |count| {
            if count < 2_000 {
                Sector((2 * count + own) * 128)
            } else {
                Sector((1 + own) << 36 | (count * 7_919 % 1_000) << 20)
            }
        })
    };
    let (together, _) = run(Tunables::default(), vec![part(0), part(1)], 3_000);
    assert!(together.merged > 0 && together.split == 0, "{together:?}");
    let (apart, elevator) = run(Tunables::default(), vec![part(0), part(1)], 8_000);
    assert!(apart.split > 0, "{apart:?}");
    assert_eq!(elevator.policy().queues(), 2);
    let (never, _) = run(Tunables::default(), vec![stream(SOON, 0), stream(SOON, 1 << 32)], 3_000);
    assert_eq!((never.merged, never.split), (0, 0), "they read far from each other");
}

#[test]
fn a_real_time_request_ends_the_turn_of_another() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    let level = Level::default();
    let read = |process, start| Request::read(Process(process), Sector(start), Sectors(8));
    for start in [0, 1_000, 2_000] {
        elevator.submit(Time(0), read(1, start)).expect("it is good");
    }
    let Next::Go(first) = elevator.dispatch(Time(0)) else { panic!("there are three") };
    let real_time = Priority { class: Class::RealTime, level };
    let urgent = read(2, 1 << 30).priority(real_time);
    elevator.submit(Time(1), urgent).expect("it is good");
    let idle = read(3, 5_000).priority(Priority { class: Class::Idle, level });
    elevator.submit(Time(2), idle).expect("it is good");
    elevator.complete(Time(3), first, Outcome::Done).expect("ours");
    let Next::Go(second) = elevator.dispatch(Time(3)) else { panic!("there are more") };
    assert_eq!(second.start(), Sector(1 << 30));
    assert_eq!(elevator.policy().counters().preemptions, 1);
    elevator.complete(Time(4), second, Outcome::Done).expect("ours");
}

/// Twice two requests for each step of the level below 8: 16 at level 4.
#[test]
fn an_async_queue_has_its_quota() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    for index in 0..40 {
        let write = Request::write(Process(1), Sector(index * 1_000), Sectors(8));
        elevator.submit(Time(0), write).expect("it is good");
    }
    let level = Level::new(7).expect("below 8");
    let low = Request::write(Process(2), Sector(1 << 30), Sectors(8))
        .priority(Priority { class: Class::BestEffort, level });
    elevator.submit(Time(0), low).expect("it is good");
    let mut now = Time(0);
    let mut starts = Vec::new();
    for _ in 0..41 {
        let Next::Go(token) = elevator.dispatch(now) else { panic!("there are more") };
        starts.push(token.start().0);
        now += Span::from_micros(10);
        elevator.complete(now, token, Outcome::Done).expect("ours");
    }
    let at = starts.iter().position(|start| *start == 1 << 30).expect("it went");
    assert!(at.is_multiple_of(16) && at > 0, "{at}: after whole turns of 16");
}

#[test]
fn neighbours_become_one_request_up_to_the_longest() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    let read = |start, sectors| Request::read(Process(1), Sector(start), Sectors(sectors));
    for (start, sectors) in [(1_000, 8), (1_016, 8), (992, 8), (1_008, 8), (1_024, 1_000)] {
        elevator.submit(Time(0), read(start, sectors)).expect("it is good");
    }
    let other = Request::read(Process(2), Sector(984), Sectors(8));
    elevator.submit(Time(0), other).expect("it is good");
    let counters = *elevator.counters();
    // 1016 touches nothing, 992 ends where 1000 begins, 1008 closes the gap, and with 1000 sectors more
    // it would be too long.
    assert_eq!((counters.front_merges, counters.back_merges, counters.coalesced), (1, 1, 1));
    assert_eq!(elevator.queued(), 3, "another process's is another queue's");
}

#[test]
fn what_is_kept_of_a_process_goes_with_it() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    for process in 0..100 {
        let read = Request::read(Process(process), Sector(u64::from(process) << 20), Sectors(8));
        elevator.submit(Time(0), read).expect("it is good");
        elevator.exited(Time(0), Process(process));
    }
    assert_eq!(elevator.policy().queues(), 100, "their requests are queued");
    let mut now = Time(0);
    loop {
        match elevator.dispatch(now) {
            Next::Go(token) => {
                now += SERVICE;
                elevator.complete(now, token, Outcome::Done).expect("ours");
            }
            Next::Wait(until) => now = until,
            Next::Hold | Next::Nothing => break,
        }
    }
    assert!(elevator.policy().queues() <= 1, "{}", elevator.policy().queues());
}

/// A page alone does not end the wait for more, but the device has it to do.
#[test]
fn a_wait_lasts_until_a_request_comes() {
    let millis = |millis| Time::ZERO + Span::from_millis(millis);
    let waited = |comes: Option<Time>| {
        let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
        let read = || Request::read(Process(1), Sector(0), Sectors(8));
        elevator.submit(Time::ZERO, read()).expect("it is good");
        let Next::Go(first) = elevator.dispatch(Time::ZERO) else { panic!("there is one") };
        elevator.complete(millis(1), first, Outcome::Done).expect("ours");
        assert_eq!(elevator.dispatch(millis(1)), Next::Wait(millis(9)));
        let second = comes.map(|at| {
            elevator.submit(at, read()).expect("it is good");
            let Next::Go(second) = elevator.dispatch(at) else { panic!("there is one") };
            second
        });
        let next = elevator.dispatch(millis(20));
        assert!(matches!(next, Next::Nothing | Next::Hold), "{next:?}");
        if let Some(second) = second {
            elevator.complete(millis(21), second, Outcome::Done).expect("ours");
        }
        let counters = elevator.policy().counters();
        assert_eq!(counters.waits, 1);
        (elevator.policy().idled(), counters.waits_in_vain)
    };
    assert_eq!(waited(Some(millis(3))), (Span::from_millis(2), 0));
    assert_eq!(waited(None), (Span::from_millis(8), 1));
}

/// Deadline: a batch behind one of the other direction begins at the oldest request, not where the last
/// one of its own ended.
#[test]
fn a_change_of_direction_begins_at_the_oldest() {
    let policy = Deadline::new(deadline::Tunables::default());
    let mut elevator = Elevator::new(policy, CAPACITY);
    let write = |start| Request::write(Process(1), Sector(start), Sectors(8));
    let go = |elevator: &mut Elevator<Deadline>| {
        let Next::Go(token) = elevator.dispatch(Time(1)) else { panic!("there is one") };
        let start = token.start().0;
        elevator.complete(Time(1), token, Outcome::Done).expect("ours");
        start
    };
    elevator.submit(Time(0), write(5_000)).expect("it is good");
    assert_eq!(go(&mut elevator), 5_000);
    let read = Request::read(Process(2), Sector(50_000), Sectors(8));
    elevator.submit(Time(0), read).expect("it is good");
    assert_eq!(go(&mut elevator), 50_000);
    // The older one lies lower.
    for start in [1_000, 9_000] {
        elevator.submit(Time(0), write(start)).expect("it is good");
    }
    assert_eq!([go(&mut elevator), go(&mut elevator)], [1_000, 9_000]);
}

#[test]
fn the_sweep_goes_on_behind_an_overdue_request() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    let read = |start| Request::read(Process(1), Sector(start), Sectors(8));
    elevator.submit(Time::ZERO, read(1 << 30)).expect("it is good");
    let mut now = Time::ZERO + Span::from_millis(200);
    for start in [1_000, (1 << 30) + 1_000] {
        elevator.submit(now, read(start)).expect("it is good");
    }
    let mut starts = Vec::new();
    for _ in 0..3 {
        let Next::Go(token) = elevator.dispatch(now) else { panic!("there are more") };
        starts.push(token.start().0);
        now += SERVICE;
        elevator.complete(now, token, Outcome::Done).expect("ours");
    }
    assert_eq!(elevator.policy().counters().overdue, 1);
    assert_eq!(starts, [1 << 30, (1 << 30) + 1_000, 1_000]);
}

/// Neither while it is waited for nor while its last request is with the device.
#[test]
fn a_process_that_is_gone_is_not_waited_for() {
    for exits_early in [false, true] {
        let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
        let read = |process, start| Request::read(Process(process), Sector(start), Sectors(128));
        elevator.submit(Time(0), read(1, 0)).expect("it is good");
        elevator.submit(Time(0), read(2, 1 << 30)).expect("it is good");
        let Next::Go(first) = elevator.dispatch(Time(0)) else { panic!("there are two") };
        let now = Time::ZERO + SERVICE;
        if exits_early {
            elevator.exited(Time(1), Process(1));
        }
        elevator.complete(now, first, Outcome::Done).expect("ours");
        if !exits_early {
            assert!(matches!(elevator.dispatch(now), Next::Wait(_)));
            elevator.exited(now + SOON, Process(1));
            assert_eq!(elevator.policy().idled(), SOON);
        }
        let Next::Go(second) = elevator.dispatch(now + SOON) else { panic!("it goes at once") };
        assert_eq!((second.start(), elevator.policy().queues()), (Sector(1 << 30), 1));
        assert_eq!(elevator.policy().counters().waits_in_vain, 0);
    }
}

/// Many processes read here and there in the same place, so that queues follow each other in chains, and
/// go and come again.
#[test]
fn no_queue_is_left_of_processes_that_read_together() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    let (mut now, mut seed, mut front) = (Time::ZERO, 1u64, 0);
    let mut dice = |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % sides
    };
    let mut at_device = Vec::new();
    for _ in 0..50_000 {
        let process = Process(dice(12) as u32);
        match dice(8) {
            0 => elevator.exited(now, process),
            roll if elevator.under_way(Direction::Read) < 8 => {
                front += 16;
                let far = if roll == 1 { 1 << 30 } else { 0 };
                let read = Request::read(process, Sector(front + far), Sectors(16));
                elevator.submit(now, read).expect("it is good");
            }
            _ => {}
        }
        if let Next::Go(token) = elevator.dispatch(now) {
            at_device.push(token);
        }
        if !at_device.is_empty() && dice(2) == 0 {
            let token = at_device.swap_remove(0);
            elevator.complete(now, token, Outcome::Done).expect("ours");
        }
        now += SERVICE;
    }
    assert!(elevator.policy().counters().merged > 100, "{:?}", elevator.policy().counters());
    while !elevator.is_idle() {
        if let Next::Go(token) = elevator.dispatch(now) {
            at_device.push(token);
        }
        for token in at_device.drain(..) {
            elevator.complete(now, token, Outcome::Done).expect("ours");
        }
        now += SERVICE;
    }
    (0..12).for_each(|process| elevator.exited(now, Process(process)));
    assert!(elevator.policy().queues() <= 1, "{} are left", elevator.policy().queues());
}

/// One for each 100 ms without a late sync request, of which there is a second before the clock begins.
#[test]
fn async_requests_go_ten_at_a_time_from_the_beginning() {
    let mut elevator = Elevator::new(Cfq::new(Tunables::default()), CAPACITY);
    for index in 0..40 {
        let write = Request::write(Process(1), Sector(index * 1_000), Sectors(8));
        elevator.submit(Time(0), write).expect("it is good");
    }
    let mut at_device = Vec::new();
    while let Next::Go(token) = elevator.dispatch(Time(0)) {
        at_device.push(token);
    }
    assert_eq!(at_device.len(), 10);
}
