//! Two processes read, one of them ahead of the other's, on a disk that takes 1 ms for a request and
//! 8 ms for a seek: with noop it seeks for nearly every request, with CFQ once a slice.

use zonal_cfq::cfq::{Cfq, Tunables};
use zonal_cfq::elevator::{Elevator, Next};
use zonal_cfq::noop::Noop;
use zonal_cfq::policy::Policy;
use zonal_cfq::request::{Outcome, Request};
use zonal_cfq::units::{Process, Sector, Sectors, Span, Time};

const LENGTH: Sectors = Sectors(256);

/// MB/s of both together over ten seconds.
fn rate(policy: impl Policy) -> f64 {
    let mut elevator = Elevator::new(policy, Sector(1 << 31));
    let (mut now, mut head, mut moved) = (Time::ZERO, Sector(0), 0);
    let ask = |elevator: &mut Elevator<_>, now, process, at: Sector| {
        let request = Request::read(Process(process), at, LENGTH);
        elevator.submit(now, request).expect("it is within the disk");
    };
    ask(&mut elevator, now, 1, Sector(0));
    ask(&mut elevator, now, 2, Sector(1 << 30));
    while now < Time::ZERO + Span::from_millis(10_000) {
        match elevator.dispatch(now) {
            Next::Go(token) => {
                let seek = if token.start() == head { Span::ZERO } else { Span::from_millis(8) };
                now += seek + Span::from_millis(1);
                head = token.start() + token.sectors();
                let done = elevator.complete(now, token, Outcome::Done).expect("it is ours");
                for part in done.parts {
                    moved += part.sectors.bytes();
                    ask(&mut elevator, now, part.process.0, part.end());
                }
            }
            Next::Wait(until) => now = until,
            Next::Hold | Next::Nothing => unreachable!("both processes have asked"),
        }
    }
    moved as f64 / 10e6
}

fn main() {
    let (noop, cfq) = (rate(Noop::default()), rate(Cfq::new(Tunables::default())));
    println!("noop {noop:.1} MB/s, CFQ {cfq:.1} MB/s");
}

#[test]
fn cfq_seeks_less() {
    let (noop, cfq) = (rate(Noop::default()), rate(Cfq::new(Tunables::default())));
    assert!(cfq > 5.0 * noop, "noop {noop}, CFQ {cfq}");
}
