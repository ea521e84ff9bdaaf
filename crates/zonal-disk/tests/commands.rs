//! What a disk may not do, whatever it is asked for; and that its parts are there: caches, queueing,
//! flush, zones.

use std::collections::BTreeMap;

use zonal_cfq::request::Outcome;
use zonal_cfq::units::{Sector, Sectors, Span, Time};
use zonal_disk::device::{Command, Device, DeviceError, Ended, Operation};
use zonal_disk::disk_file::{Disk, Kind};
use zonal_disk::{builtin, builtins};

fn disk(name: &str) -> Disk {
    builtin(name).expect("it is built in")
}

fn read(start: u64, sectors: u32) -> Operation {
    Operation::Read { start: Sector(start), sectors: Sectors(sectors) }
}

fn write(start: u64, sectors: u32) -> Operation {
    Operation::Write { start: Sector(start), sectors: Sectors(sectors) }
}

/// Lets one command run alone; how long it took.
fn alone(device: &mut dyn Device, now: Time, operation: Operation) -> Span {
    device.start(now, Command { id: 1, operation }).expect("there is room");
    while let Some(at) = device.next_event() {
        if let Some(ended) = device.poll(at) {
            return ended.at.since(now);
        }
    }
    panic!("it does not end")
}

/// Checks that commands end once, in order, not before they start, and says which rule was broken.
fn check(
    started: &mut BTreeMap<u64, Time>,
    last: &mut Time,
    ended: Ended,
) -> Result<(), &'static str> {
    let begun = started.remove(&ended.id).ok_or("ended twice, or never began")?;
    if ended.at < *last {
        return Err("time went back");
    }
    *last = ended.at;
    if ended.at > begun { Ok(()) } else { Err("it took no time") }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn every_command_ends_once_whatever_is_asked_for() {
    for (name, disk) in builtins() {
        for seed in 0..20 {
            let mut device = disk.device();
            let mut dice = Dice(seed);
            let (mut started, mut last, mut now) = (BTreeMap::new(), Time::ZERO, Time::ZERO);
            let mut full = 0;
            for id in 0..400 {
                let start = dice.roll(disk.capacity().0 / 1000) * (1 + dice.roll(900));
                let operation = match dice.roll(20) {
                    0 => Operation::Flush,
                    roll if roll < 10 => read(start, 1 + dice.roll(1024) as u32),
                    _ => write(start, 1 + dice.roll(1024) as u32),
                };
                match device.start(now, Command { id, operation }) {
                    Ok(()) => assert!(started.insert(id, now).is_none()),
                    Err(DeviceError::Full(_)) => full += 1,
                    Err(error) => panic!("{error}"),
                }
                assert!(started.len() <= device.depth());
                now += Span(dice.roll(3_000_000));
                while let Some(ended) = device.poll(now) {
                    check(&mut started, &mut last, ended).expect(name);
                }
            }
            while let Some(at) = device.next_event() {
                while let Some(ended) = device.poll(at) {
                    check(&mut started, &mut last, ended).expect(name);
                }
            }
            assert!(started.is_empty(), "{name}, seed {seed}: {started:?} did not end");
            assert!(full > 0 || !disk.is_rotational(), "{name}: its queue was never full");
        }
    }
}

/// The bugs that the check is to find.
#[test]
fn planted_bugs_are_found() {
    let (mut last, ended) = (Time(5), |at| Ended { id: 1, at: Time(at), outcome: Outcome::Done });
    let begun = || BTreeMap::from([(1, Time(7))]);
    assert!(check(&mut BTreeMap::new(), &mut last, ended(9)).is_err());
    assert!(check(&mut begun(), &mut last, ended(7)).is_err());
    assert!(check(&mut begun(), &mut last, ended(4)).is_err());
    assert!(check(&mut begun(), &mut last, ended(9)).is_ok());
}

#[test]
fn what_is_no_command_is_refused_and_changes_nothing() {
    for (_, disk) in builtins() {
        let mut device = disk.device();
        let capacity = disk.capacity();
        let mut refuse = |id, operation| {
            device.start(Time::ZERO, Command { id, operation }).expect_err("it is none")
        };
        assert_eq!(refuse(1, read(0, 0)), DeviceError::Empty);
        let end = Sector(capacity.0 + 1);
        assert_eq!(refuse(1, read(capacity.0 - 7, 8)), DeviceError::BeyondEnd { end, capacity });
        assert!(matches!(refuse(1, write(u64::MAX - 3, 8)), DeviceError::BeyondEnd { .. }));
        assert_eq!(device.next_event(), None);
        device.start(Time::ZERO, Command { id: 1, operation: read(0, 8) }).expect("it is one");
        let again = Command { id: 1, operation: read(8, 8) };
        assert_eq!(device.start(Time::ZERO, again), Err(DeviceError::Taken(1)));
    }
}

#[test]
fn spoiled_sectors_fail_and_others_do_not() {
    for (_, disk) in builtins() {
        let mut device = disk.device();
        device.spoil(Sector(1000), Sector(1001));
        let mut outcome = |start| {
            let command = Command { id: 1, operation: read(start, 8) };
            device.start(Time::ZERO, command).expect("it is one");
            let end = device.next_event().expect("it is at work");
            device.poll(end).expect("it ends").outcome
        };
        let outcomes = [992, 993, 1000, 1001].map(&mut outcome);
        assert_eq!(outcomes, [Outcome::Done, Outcome::Failed, Outcome::Failed, Outcome::Done]);
    }
}

/// MiB/s of one reader that asks for 128 KiB when it has the 128 KiB before.
fn sequential(disk: &Disk, from: u64) -> f64 {
    let mut device = disk.device();
    let (mut now, mut at) = (Time::ZERO, from);
    for _ in 0..2000 {
        now += alone(&mut *device, now, read(at, 256)) + Span::from_micros(100);
        at += 256;
    }
    2000.0 / 8.0 / (now.0 as f64 / 1e9)
}

/// What the outer rate was fitted to, and that reading on hides the gaps between commands.
#[test]
fn one_reader_gets_the_rate_of_the_medium() {
    let published = [
        ("desktop_2014", 121.88),
        ("better_desktop_2014", 125.09),
        ("laptop_2014", 85.03),
        ("second_2014", 129.69),
    ];
    for (name, rate) in published {
        let got = sequential(&disk(name), 1 << 20);
        assert!((got / rate - 1.0).abs() < 0.01, "{name}: {got}, not {rate}");
    }
    let desktop = disk("desktop_2014");
    let inner = sequential(&desktop, desktop.capacity().0 - (1 << 21));
    assert!((0.5..0.6).contains(&(inner / 121.88)), "{inner}");
}

/// The interface fills the write cache while the heads empty it, and they go on where they are.
#[test]
fn one_writer_gets_the_rate_of_the_medium() {
    let disk = disk("desktop_2014");
    let mut device = disk.device();
    let (mut now, mut next, each) = (Time::ZERO, 0, 1024);
    let all = 1u64 << 20;
    while next < all || device.next_event().is_some() {
        while next < all
            && device.start(now, Command { id: next, operation: write(next, each) }).is_ok()
        {
            next += u64::from(each);
        }
        let Some(at) = device.next_event() else { break };
        now = now.max(at);
        while device.poll(now).is_some() {}
    }
    let rate = (all * 512) as f64 / f64::from(1 << 20) / (now.0 as f64 / 1e9);
    let read = sequential(&disk, 0);
    assert!((0.85..1.05).contains(&(rate / read)), "{rate} {read}");
}

/// What is skipped passes under the head: it costs no revolution.
#[test]
fn a_small_gap_is_waited_for() {
    let disk = disk("desktop_2014");
    let run = |gap: u64| {
        let mut device = disk.device();
        let mut now = Time(1 << 40);
        let begin = now;
        for id in 0..200u64 {
            let start = (1 << 24) + id * (256 + gap);
            now += alone(&mut *device, now, read(start, 256));
        }
        now.since(begin).as_millis()
    };
    let (whole, gaps) = (run(0), run(8));
    assert!(gaps < whole * 1.1, "{gaps} {whole}");
}

/// Reading on for long does not keep all of it.
#[test]
fn what_was_read_long_ago_is_read_again() {
    let disk = disk("desktop_2014");
    let mut device = disk.device();
    let mut now = Time::ZERO;
    for at in 0..4000 {
        now += alone(&mut *device, now, read(at * 256, 256));
    }
    let again = alone(&mut *device, now, read(0, 8));
    assert!(again > Span::from_millis(1), "{again:?}");
}

#[test]
fn without_a_track_cache_each_gap_costs_a_revolution() {
    let mut disk = disk("desktop_2014");
    let Kind::HardDisk(file) = &mut disk.kind else { panic!("it turns") };
    file.segment_kib = 0;
    let got = sequential(&disk, 1 << 20);
    assert!(got < 20.0, "{got}");
}

/// Reads per second with `depth` of them at a time.
fn random_reads(disk: &Disk, depth: u64) -> f64 {
    let mut device = disk.device();
    let mut dice = Dice(1);
    let (mut now, mut done) = (Time::ZERO, 0);
    for id in 0..600 + depth {
        let start = dice.roll(disk.capacity().0 / 8 - 1) * 8;
        if id >= depth {
            loop {
                now = device.next_event().expect("it is at work");
                if device.poll(now).is_some() {
                    break;
                }
            }
            done += 1;
        }
        device.start(now, Command { id, operation: read(start, 8) }).expect("there is room");
    }
    f64::from(done) / (now.0 as f64 / 1e9)
}

#[test]
fn queueing_helps_random_reads() {
    for (name, least, most) in [("desktop_2014", 60.0, 90.0), ("sata_ssd", 5_000.0, 15_000.0)] {
        let disk = disk(name);
        let (one, many) = (random_reads(&disk, 1), random_reads(&disk, 31));
        assert!((least..most).contains(&one), "{name}: {one}");
        assert!(many > 1.5 * one, "{name}: {one} and {many}");
    }
}

#[test]
fn writes_end_in_the_cache_and_a_flush_brings_them_to_the_medium() {
    let desktop = disk("desktop_2014");
    let mut device = desktop.device();
    let mut now = Time::ZERO;
    for step in 0..20 {
        let time = alone(&mut *device, now, write(step << 24, 8));
        assert!(time < Span::from_millis(1), "{time:?}");
        now += time;
    }
    let flush = alone(&mut *device, now, Operation::Flush);
    assert!(flush > Span::from_millis(20 * 4), "{flush:?} for 20 places");
    now += flush;
    assert!(alone(&mut *device, now, Operation::Flush) < Span::from_millis(1));
    let mut without = desktop.clone();
    let Kind::HardDisk(file) = &mut without.kind else { panic!("it turns") };
    file.write_kib = 0;
    let time = alone(&mut *without.device(), Time::ZERO, write(1 << 24, 8));
    assert!(time > Span::from_millis(1), "{time:?}");
}

#[test]
fn a_rest_empties_the_write_cache() {
    let mut device = disk("desktop_2014").device();
    let time = alone(&mut *device, Time::ZERO, write(1 << 24, 8));
    let mut now = Time::ZERO + time;
    while let Some(at) = device.next_event() {
        now = at;
        assert_eq!(device.poll(at), None);
    }
    assert!(now > Time::ZERO + Span::from_millis(50));
    assert!(alone(&mut *device, now, Operation::Flush) < Span::from_millis(1));
}

#[test]
fn flaws_of_files_are_named() {
    let text = include_str!("../disks/desktop_2014.toml");
    let flaw = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Disk::parse(&text.replacen(from, to, 1), "mine.toml").expect_err("a flaw").to_string()
    };
    assert_eq!(flaw("rpm = 7200.0", "rpm = 1.0"), "mine.toml: rpm is 1, but must be 1000 to 30000");
    assert!(flaw("rpm = 7200.0", "rpm = nan").contains("rpm is NaN"));
    let line = text.lines().position(|line| line.starts_with("rpm")).expect("it has one") + 1;
    assert!(flaw("rpm =", "turns =").starts_with(&format!("mine.toml:{line}:1: unknown field")));
    assert!(flaw("[hard_disk]", "[drum]").contains("drum"));
    assert!(flaw("share = 0.25", "share = 0.5").contains("sum"));
    assert!(flaw("name = \"desktop_2014\"", "name = \"A\"").contains("name"));
    let missing = Disk::load(std::path::Path::new("/nonexistent.toml")).expect_err("not there");
    assert!(missing.to_string().contains("cannot be read"));
}

/// A write ends in the buffer; it is on the medium before a flush ends, also when a later one pushed it out.
#[test]
fn a_flush_waits_for_all_that_was_written() {
    let mut ssd = disk("sata_ssd");
    let Kind::SolidState(file) = &mut ssd.kind else { panic!("it is one") };
    (file.write_kib, file.program_us) = (64, 1000.0);
    let mut device = ssd.device();
    let mut start = |micros, id, operation| {
        let at = Time::ZERO + Span::from_micros(micros);
        device.start(at, Command { id, operation }).expect("there is room");
    };
    start(0, 1, write(0, 128));
    start(300, 2, write(1 << 20, 256));
    start(400, 3, Operation::Flush);
    let ends: BTreeMap<u64, Time> =
        (0..3).filter_map(|_| device.poll(Time(1 << 40))).map(|it| (it.id, it.at)).collect();
    assert!(ends[&1] < Time::ZERO + Span::from_micros(300), "it was in the buffer: {ends:?}");
    assert!(ends[&3] >= ends[&2] + Span::from_micros(500), "{ends:?}");
}

/// An end that was not asked for does not let the next command begin before it comes.
#[test]
fn no_command_begins_before_it_comes() {
    for (name, disk) in builtins() {
        for operation in [read(1 << 24, 8), write(1 << 24, 8), Operation::Flush] {
            let mut device = disk.device();
            device.start(Time::ZERO, Command { id: 1, operation: read(0, 8) }).expect("at rest");
            let end = device.next_event().expect("it is at work");
            let comes = end + Span::from_millis(100);
            device.start(comes, Command { id: 2, operation }).expect("there is room");
            let far = Time::ZERO + Span::from_millis(1000);
            let ended = [device.poll(far), device.poll(far)].map(|it| it.expect("both end").at);
            assert!(ended[0] == end && ended[1] > comes, "{name} {operation:?}: {ended:?}");
        }
    }
}
