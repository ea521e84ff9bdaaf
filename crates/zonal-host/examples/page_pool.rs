//! A page pool in user space: 64 MiB mapped, a huge page, and a thread's own handle.
//!
//! The README shows this program, and a test compares the two.
//!
//! ```text
//! cargo run --release -p zonal-host --example page_pool
//! ```

use zonal::{Order, Request};
use zonal_host::Arena;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arena = Arena::builder().bytes(64 << 20).open()?;
    let mut huge = arena.alloc(&Request::new(Order::HUGE))?;
    huge[4096..8192].fill(7); // a page is a `[u8]`, freed when dropped

    let mut handle = arena.handle()?; // this thread's own: no lock while it has frames
    let frame = handle.alloc(&Request::frame().zero())?;
    assert!(frame.iter().all(|&byte| byte == 0));
    handle.free(frame);
    Ok(())
}
