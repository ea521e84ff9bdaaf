//! Blocks of all orders, allocated and freed at random, while the timer allocates too.

use super::chain::Chain;
use super::{REFUSED, Random, WORK, handler, with_timer};
use crate::machine::cpu;
use crate::memory::alloc;
use core::sync::atomic::Ordering::Relaxed;
use zonal::{MigrateType, Order, Request};

/// Steps of all processors together.
const STEPS: u64 = 60_000;
/// How many chains a processor has.
const CHAINS: usize = 16;

pub(crate) fn task(number: u32) {
    with_timer(150, || handler::with(2, || steps(number, STEPS / u64::from(cpu::count()))));
}

/// Allocates and frees `count` times.
pub(super) fn steps(number: u32, count: u64) {
    let mut random = Random::new(number);
    let stamp = |chain: usize| u64::from(number) << 32 | chain as u64;
    let mut chains: [Chain; CHAINS] = core::array::from_fn(|n| Chain::new(stamp(n)));
    let types = [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];
    for _ in 0..count {
        let chain = &mut chains[random.below(CHAINS as u64) as usize];
        if random.below(2) == 0 {
            chain.free_one();
            continue;
        }
        // Small ones mostly.
        let most = random.below(11) + 1;
        let order = Order::new(random.below(most) as u8).unwrap_or(Order::ZERO);
        let request = Request::new(order).migrate(types[random.below(3) as usize]);
        match alloc(&request) {
            Ok(block) => chain.push(block),
            Err(_) => {
                REFUSED.fetch_add(1, Relaxed);
                chain.free_one();
            }
        }
        WORK.fetch_add(1, Relaxed);
    }
    chains.into_iter().for_each(|chain| {
        chain.free_all();
    });
}
