//! The calls of C from Rust: a pool, a row of pages, and what there is.

#![expect(
    clippy::borrow_as_ptr,
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls as C makes them, one after the other"
)]

use std::ptr::{null, null_mut};
use zonal_capi::{
    Settings, ZoneNumbers, zonal_alloc_pages, zonal_close, zonal_free_pages, zonal_open,
    zonal_zone_info,
};

fn main() {
    let settings =
        Settings { size: size_of::<Settings>() as u32, bytes: 64 << 20, ..Settings::default() };
    let (mut pool, mut row) = (null_mut(), 0);
    let mut zone = ZoneNumbers { size: size_of::<ZoneNumbers>() as u32, ..ZoneNumbers::default() };
    // SAFETY: the pointers are to variables; the frames are freed once, and the pool is closed once, at the end.
    unsafe {
        assert_eq!(zonal_open(&settings, &mut pool), 0);
        assert_eq!(zonal_alloc_pages(pool, null(), 12, 4, 0, &mut row), 0);
        assert_eq!(zonal_free_pages(pool, row, 1), 0);
        assert_eq!(zonal_free_pages(pool, row + 1, 11), 0);
        assert_eq!(zonal_zone_info(pool, 0, &mut zone), 0);
        zonal_close(pool);
    }
    println!("{} of {} frames are free", zone.free + zone.cached, zone.managed);
}
