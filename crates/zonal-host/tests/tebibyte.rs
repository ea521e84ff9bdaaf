//! A TiB of reserved address space opens at once and takes next to no memory. Alone in its
//! process, so that what others touch is not counted.
#![cfg(not(loom))]

use std::time::{Duration, Instant};
use zonal::{MigrateType, Order, Request};
use zonal_host::Arena;

/// Bytes of the process in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn a_tebibyte_is_cheap() {
    let open = || Arena::builder().bytes(64 << 20).reserve(1 << 40).open().unwrap();
    let before = resident();
    // The best of three: others may have the CPU.
    let time = (0..3).map(|_| {
        let start = Instant::now();
        let arena = open();
        let took = start.elapsed();
        assert_eq!(arena.len(), 1 << 40);
        took
    });
    let time: Duration = time.min().unwrap();

    let arena = open();
    let opened = resident() - before;
    println!("1 TiB: {time:.1?}, {} KiB resident, process {} KiB", opened >> 10, resident() >> 10);
    assert!(time < Duration::from_millis(50), "{time:?}");
    assert!(resident() < 64 << 20, "{} bytes", resident());
    assert!(arena.table_bytes() <= 10 * (arena.len() as u64 >> 12));

    let request = Request::new(Order::HUGE).migrate(MigrateType::Movable);
    let mut pages: Vec<_> = (0..64).map(|_| arena.alloc(&request).unwrap()).collect();
    pages.iter_mut().for_each(|page| page[0] = 1);
    let used = resident() - before - opened;
    assert!(used < 8 << 20, "{used} bytes for 64 touched frames");
}
