//! Threads share an arena: each allocates pages through a handle of its own, writes them, and
//! frees them; idle memory then goes back to the kernel.
//!
//! ```text
//! cargo run --release -p zonal-host --example arena
//! ```

use std::error::Error;
use std::thread;
use std::time::Instant;
use zonal::{Order, Request, ZoneId};
use zonal_host::region::GiveBack;
use zonal_host::{Arena, HugePages, cpu};

const PAGES: u32 = 8192;
const ROUNDS: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arena =
        Arena::builder().bytes(256 << 20).huge(HugePages::Advise).open().or_else(|why| {
            println!("{why}; trying without huge pages");
            Arena::builder().bytes(256 << 20).open()
        })?;
    println!(
        "{} MiB at {:#x}, frame table of {} KiB",
        arena.len() >> 20,
        arena.first().address(),
        arena.table_bytes() >> 10
    );

    let cpus = cpu::allowed()?;
    thread::scope(|scope| {
        for &cpu in &cpus {
            let arena = &arena;
            scope.spawn(move || match work(arena, cpu) {
                Ok(ns) => println!("CPU {cpu}: {ns:.1} ns a page, allocated, written, freed"),
                Err(error) => println!("CPU {cpu}: {error}"),
            });
        }
    });

    let given = arena.give_back(usize::MAX, GiveBack::Now)?;
    println!("{} MiB given back to the kernel", given.bytes >> 20);
    if let Some(zone) = arena.zone_info(ZoneId(0)) {
        println!("{} of {} frames are free", zone.free, zone.managed);
    }

    // What cannot be is an error that says why.
    let pages: Vec<_> = (0..).map_while(|_| arena.alloc(&Request::new(Order::MAX)).ok()).collect();
    println!("{} blocks of 4 MiB, then: ", pages.len());
    if let Err(error) = arena.alloc(&Request::frame()) {
        println!("{error}");
    }
    Ok(())
}

/// Nanoseconds a page, in the best round: the first pays for the kernel's page faults.
fn work(arena: &Arena, cpu: zonal::CpuId) -> Result<f64, Box<dyn Error>> {
    cpu::pin_to(cpu)?;
    let mut handle = arena.handle()?;
    let mut pages = Vec::with_capacity(PAGES as usize);
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PAGES {
            let mut page = handle.alloc(&Request::frame())?;
            page[0] = round as u8;
            pages.push(page);
        }
        pages.drain(..).for_each(|page| handle.free(page));
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(PAGES));
    }
    Ok(best)
}
