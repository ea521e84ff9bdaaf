//! A pool with too few huge pages, while other threads map and unmap memory of their own.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use zonal_host::region::RegionError;
use zonal_host::{Arena, ArenaError, HugePages};

const MIB: usize = 1 << 20;

/// What others mapped meanwhile stays: at addresses that the arena had for a moment, or had not.
#[test]
fn an_arena_that_cannot_open_leaves_the_memory_of_others() {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for stamp in [1_u8, 2] {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    // Large enough to be a mapping of its own.
                    let mine = vec![stamp; 4 * MIB];
                    assert!(mine.iter().step_by(4096).all(|&byte| byte == stamp));
                }
            });
        }
        for _ in 0..8_000 {
            // More than any machine's pool has.
            let arena = Arena::builder().bytes(1 << 45).huge(HugePages::HugeTlb).open();
            let error = arena.map(drop).unwrap_err();
            let ArenaError::Memory(RegionError::NoHugePages { .. }) = error else {
                panic!("{error}");
            };
        }
        done.store(true, Relaxed);
    });
}
