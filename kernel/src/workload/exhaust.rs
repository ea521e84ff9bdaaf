//! All memory, until requests are refused, by tasks and by handlers.

use super::chain::Chain;
use super::{REFUSED, WORK, handler, with_timer};
use crate::machine::team;
use crate::memory::alloc;
use core::sync::atomic::Ordering::Relaxed;
use zonal::Request;

pub(crate) fn task(number: u32) {
    let mut chain = Chain::new(u64::from(number) << 32 | 7);
    with_timer(100, || {
        handler::with(4, || {
            let mut refused = 0;
            // A little more after each refusal: what others give back is taken again.
            while refused < 200 {
                match alloc(&Request::frame()) {
                    Ok(block) => chain.push(block),
                    Err(_) => {
                        refused += 1;
                        (0..refused % 5).for_each(|_| {
                            chain.free_one();
                        });
                    }
                }
            }
            REFUSED.fetch_add(refused, Relaxed);
            team::meet();
        });
    });
    WORK.fetch_add(chain.free_all(), Relaxed);
}

/// Handlers were refused, and tasks were.
pub(crate) fn refused() -> Result<(), &'static str> {
    let turned_down = handler::TURNED_DOWN.load(Relaxed);
    crate::say!("{:>9}  {turned_down} requests of handlers refused", "");
    if REFUSED.load(Relaxed) == 0 { Err("memory was not exhausted") } else { Ok(()) }
}
