//! Shares of the device by weight and by priority, and that no request starves. The device takes
//! 1 ms for 128 KiB anywhere: what readers get of it is what the scheduler gives them.

use std::collections::BTreeMap;

use zonal_cfq::cfq::{Cfq, Tunables, Weight};
use zonal_cfq::deadline::{self, Deadline};
use zonal_cfq::elevator::{Elevator, Limits, Next};
use zonal_cfq::policy::Policy;
use zonal_cfq::request::{Class, Level, Outcome, Priority, Request};
use zonal_cfq::units::{GroupId, Process, Sector, Sectors, Span, Time};

const CAPACITY: Sector = Sector(1 << 40);
const SERVICE: Span = Span::from_millis(1);

/// What a process does over and over: as many requests at once as `depth`, each behind the last.
#[derive(Clone, Copy)]
struct Reader {
    group: GroupId,
    class: Class,
    level: u8,
    /// From the end of one request to the next.
    think: Span,
    depth: u32,
    writes: bool,
}

const READER: Reader = Reader {
    group: GroupId::ROOT,
    class: Class::BestEffort,
    level: 4,
    think: Span::from_micros(50),
    depth: 1,
    writes: false,
};

struct Machine<P> {
    elevator: Elevator<P>,
    readers: Vec<Reader>,
    /// Where each asks next.
    positions: Vec<Sector>,
    now: Time,
    /// When each process asks: time, order, process.
    asks: BTreeMap<(Time, u64), usize>,
    order: u64,
    /// Requests done for each process.
    done: Vec<u64>,
    /// The longest that a request waited, for each process.
    longest: Vec<Span>,
    /// How long the request waited that has the tag [`FAR`].
    far: Option<Span>,
}

const FAR: u64 = 99;

impl<P: Policy> Machine<P> {
    fn new(policy: P, readers: &[Reader]) -> Self {
        let limits = Limits { requests: 10_000, ..Limits::default() };
        let mut machine = Self {
            elevator: Elevator::with_limits(policy, CAPACITY, limits),
            readers: readers.to_vec(),
            positions: (0..readers.len() as u64).map(|it| Sector(it << 34)).collect(),
            now: Time::ZERO,
            asks: BTreeMap::new(),
            order: 0,
            done: vec![0; readers.len()],
            longest: vec![Span::ZERO; readers.len()],
            far: None,
        };
        for (process, reader) in readers.iter().enumerate() {
            (0..reader.depth).for_each(|_| machine.will_ask(process, Time::ZERO));
        }
        machine
    }

    fn will_ask(&mut self, process: usize, at: Time) {
        self.order += 1;
        self.asks.insert((at, self.order), process);
    }

    fn ask_until(&mut self, until: Time) {
        while let Some(entry) = self.asks.first_entry().filter(|it| it.key().0 <= until) {
            let ((at, _), process) = entry.remove_entry();
            let (reader, start) = (self.readers[process], self.positions[process]);
            // A gap of a page: no two requests merge.
            self.positions[process] = Sector(start.0 + 264);
            let level = Level::new(reader.level).expect("below 8");
            let make = if reader.writes { Request::write } else { Request::read };
            let request = make(Process(process as u32), start, Sectors(256))
                .group(reader.group)
                .priority(Priority { class: reader.class, level });
            self.elevator.submit(at, request).expect("it is good");
        }
    }

    fn run(&mut self, until: Time) {
        while self.now < until {
            self.ask_until(self.now);
            let asks = self.asks.first_key_value().map(|((at, _), _)| *at);
            match self.elevator.dispatch(self.now) {
                Next::Go(token) => {
                    let end = self.now + SERVICE;
                    self.ask_until(end);
                    self.now = end;
                    let done = self.elevator.complete(end, token, Outcome::Done).expect("ours");
                    for part in done.parts {
                        let process = part.process.0 as usize;
                        self.done[process] += 1;
                        let waited = end.since(part.arrived);
                        self.longest[process] = self.longest[process].max(waited);
                        if part.tag == FAR {
                            self.far = Some(waited);
                            continue;
                        }
                        self.will_ask(process, end + self.readers[process].think);
                    }
                }
                Next::Wait(at) => self.now = asks.map_or(at, |ask| ask.min(at)),
                Next::Hold | Next::Nothing => self.now = asks.expect("all wait for none"),
            }
        }
    }

    /// The parts of what was done.
    fn shares(&self) -> Vec<f64> {
        let all: u64 = self.done.iter().sum();
        self.done.iter().map(|done| *done as f64 / all as f64).collect()
    }
}

/// Whether each share is within 5 % of what it should be.
fn is_fair(shares: &[f64], wanted: &[f64]) -> bool {
    let sum: f64 = wanted.iter().sum();
    shares.iter().zip(wanted).all(|(share, wanted)| (share / (wanted / sum) - 1.0).abs() < 0.05)
}

fn shares_of(cfq: Cfq, readers: &[Reader]) -> Vec<f64> {
    let mut machine = Machine::new(cfq, readers);
    machine.run(Time::ZERO + Span::from_millis(60_000));
    machine.shares()
}

#[test]
fn readers_of_one_level_get_the_same() {
    for count in [2, 3, 7, 16] {
        let shares = shares_of(Cfq::new(Tunables::default()), &vec![READER; count]);
        assert!(is_fair(&shares, &vec![1.0; count]), "{shares:?}");
    }
}

#[test]
fn groups_get_what_their_weights_say() {
    for (weights, counts) in [([500, 1000], [1, 1]), ([100, 700], [1, 3]), ([1000, 250], [2, 1])] {
        let mut cfq = Cfq::new(Tunables::default());
        let mut readers = Vec::new();
        let mut wanted = Vec::new();
        for (weight, count) in weights.into_iter().zip(counts) {
            let group = cfq.add_group(Weight::new(weight).expect("it is one")).expect("few");
            readers.extend((0..count).map(|_| Reader { group, ..READER }));
            wanted.extend((0..count).map(|_| f64::from(weight) / f64::from(count)));
        }
        let shares = shares_of(cfq, &readers);
        assert!(is_fair(&shares, &wanted), "{weights:?} {counts:?}: {shares:?}");
        assert!(!is_fair(&shares, &vec![1.0; readers.len()]), "weights were looked at");
    }
}

/// By hand: who is served next has the lowest key; a turn moves the key to its end, and as much
/// further as the full slice lacks to 180 ms, for each other queue but one: a reader has no request
/// when its turn ends, is placed anew with the next one, and is not counted then. Slices are shares
/// of the target where they do not fit in it. A turn is a request of 1 ms and then as many of 1.05 ms, with the time
/// to think before, as begin within the slice.
fn predicted(levels: &[u8]) -> Vec<f64> {
    let count = levels.len() as f64;
    let full = |level: u8| 20.0 * (9.0 - f64::from(level));
    let slice = |level: u8| full(level) * (300.0 / (100.0 * count)).min(1.0);
    let lacks = |level: u8| (count - 2.0) * (180.0 - full(level));
    let mut keys: Vec<f64> = levels.iter().map(|it| lacks(*it)).collect();
    let (mut now, mut got) = (0.0, vec![0.0; levels.len()]);
    while now < 1e6 {
        let first = (0..keys.len()).min_by(|a, b| keys[*a].total_cmp(&keys[*b])).expect("some");
        let slice = slice(levels[first]);
        let turn = 1.0 + (slice / 1.05).ceil() * 1.05;
        now += turn;
        got[first] += turn;
        keys[first] = now + lacks(levels[first]);
    }
    got
}

#[test]
fn levels_get_what_follows_from_slices_and_keys() {
    for levels in [&[0, 4][..], &[4, 7], &[0, 4, 7], &[0, 2, 4, 6, 7]] {
        let readers: Vec<_> = levels.iter().map(|it| Reader { level: *it, ..READER }).collect();
        let shares = shares_of(Cfq::new(Tunables::default()), &readers);
        let wanted = predicted(levels);
        assert!(is_fair(&shares, &wanted), "{levels:?}: {shares:?}, not {wanted:?}");
        assert!(shares.is_sorted_by(|one, next| one > next), "{shares:?}");
    }
}

/// The bug that the fairness tests are to find: levels that are not looked at.
#[test]
fn unfairness_is_found() {
    let shares = shares_of(Cfq::new(Tunables::default()), &[READER; 2]);
    assert!(!is_fair(&shares, &predicted(&[0, 4])));
    assert!(!is_fair(&[0.47, 0.53], &[1.0, 1.0]));
}

#[test]
fn real_time_goes_first_and_idle_last() {
    let with = |class| Reader { class, ..READER };
    let shares = shares_of(Cfq::new(Tunables::default()), &[with(Class::RealTime), READER]);
    assert!(shares[0] > 0.95, "{shares:?}");
    let shares = shares_of(Cfq::new(Tunables::default()), &[READER, with(Class::Idle)]);
    assert!(shares[0] > 0.95, "{shares:?}");
}

/// A deep stream, and one request of the same process far behind it: how long that waits.
fn wait_far_away(policy: impl Policy) -> Option<Span> {
    let deep = Reader { depth: 6, think: Span::ZERO, ..READER };
    let mut machine = Machine::new(policy, &[deep]);
    machine.positions[0] = Sector(1 << 36);
    machine.run(Time::ZERO + Span::from_millis(50));
    let far = Request::read(Process(0), Sector(0), Sectors(8)).tag(FAR);
    machine.elevator.submit(machine.now, far).expect("it is good");
    let done = machine.done[0];
    machine.run(machine.now + Span::from_millis(5_000));
    assert!(machine.done[0] > done + 4_000);
    machine.far
}

#[test]
fn an_overdue_request_goes_first() {
    // Overdue after 125 ms, looked at with the next turn: a slice of 100 ms and what the device has.
    let wait = wait_far_away(Cfq::new(Tunables::default())).expect("it came back");
    assert!(wait < Span::from_millis(125 + 100 + 20), "{wait:?}");
    let wait = wait_far_away(Deadline::new(deadline::Tunables::default())).expect("it came back");
    assert!(wait < Span::from_millis(500 + 2 * 16 + 20), "{wait:?}");
}

/// The bug that this is to find: no request is ever overdue.
#[test]
fn starvation_is_found() {
    let never = Span::from_millis(1 << 30);
    let tunables = Tunables { fifo_expire_sync: never, ..Tunables::default() };
    assert_eq!(wait_far_away(Cfq::new(tunables)), None);
    let tunables = deadline::Tunables { read_expire: never, ..deadline::Tunables::default() };
    assert_eq!(wait_far_away(Deadline::new(tunables)), None);
}

#[test]
fn writes_go_on_beside_readers() {
    let writer = Reader { writes: true, depth: 32, ..READER };
    let mut machine = Machine::new(Cfq::new(Tunables::default()), &[READER, READER, writer]);
    machine.run(Time::ZERO + Span::from_millis(20_000));
    // Each reader's request ends their turn: few go, but they go.
    assert!(machine.done[2] > 50, "{:?} {:?}", machine.done, machine.longest);
    let shares = machine.shares();
    assert!(shares[0] + shares[1] > 0.7, "{shares:?}");
    let reader = Reader { depth: 4, think: Span::ZERO, ..READER };
    let deadline = Deadline::new(deadline::Tunables::default());
    let mut machine = Machine::new(deadline, &[reader, writer]);
    machine.run(Time::ZERO + Span::from_millis(20_000));
    // Two batches of reads, of 16, for each of writes.
    assert!((0.2..0.5).contains(&machine.shares()[1]), "{:?}", machine.shares());
    assert!(machine.longest[1] < Span::from_millis(500), "{:?}", machine.longest);
}
