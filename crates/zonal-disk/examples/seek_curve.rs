//! What a read of 4 KiB takes at growing distances, on a disk that is built in.

use zonal_cfq::units::{Sector, Sectors, Time};
use zonal_disk::device::{Command, Operation};

/// Mean milliseconds of 64 reads, each `distance` from the one before.
fn mean_ms(distance: u64) -> f64 {
    let disk = zonal_disk::builtin("desktop_2014").expect("it is built in");
    let mut device = disk.device();
    let (mut now, mut sum) = (Time::ZERO, 0.0);
    for id in 0..64 {
        let start = Sector((id % 2) * distance + id * 4096);
        let operation = Operation::Read { start, sectors: Sectors(8) };
        device.start(now, Command { id, operation }).expect("it is at rest");
        let end = device.next_event().expect("it is at work");
        device.poll(end).expect("it ends then");
        sum += end.since(now).as_millis();
        now = Time(end.0 + 1_234_567);
    }
    sum / 64.0
}

fn main() {
    for gib in [1u64, 10, 100, 900] {
        println!("{gib:>4} GiB apart: {:.2} ms", mean_ms(gib << 21));
    }
}

#[test]
fn further_takes_longer() {
    assert!(mean_ms(900 << 21) > mean_ms(1 << 21) + 3.0);
}
