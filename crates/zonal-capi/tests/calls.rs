//! The calls of C, from Rust: what they answer to wrong arguments, and that what is refused changes nothing.
#![cfg(feature = "std")]
#![expect(
    clippy::borrow_as_ptr,
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls as C makes them, one after the other"
)]

use std::ffi::CStr;
use std::ptr::{null, null_mut};
use zonal_capi::{
    AllocRequest, Code, Flag, Pool, Settings, ZoneNumbers, zonal_address, zonal_alloc,
    zonal_alloc_at, zonal_alloc_bulk, zonal_alloc_pages, zonal_close, zonal_drain,
    zonal_error_text, zonal_free, zonal_free_bulk, zonal_free_pages, zonal_offline, zonal_online,
    zonal_open, zonal_release, zonal_report, zonal_zone_info,
};

const SETTINGS: Settings = Settings {
    size: size_of::<Settings>() as u32,
    cpus: 2,
    bytes: 16 << 20,
    reserve: 0,
    pageblock_order: 0,
    reserved: 0,
    movable_frames: 0,
    min_free_frames: 0,
    tables_below: 0,
};

fn with(f: impl FnOnce(*mut Pool)) {
    let mut pool = null_mut();
    // SAFETY: the pointers are to variables.
    assert_eq!(unsafe { zonal_open(&SETTINGS, &mut pool) }, 0);
    f(pool);
    // SAFETY: opened above; nothing of it is used any more.
    unsafe { zonal_close(pool) };
}

fn zone(pool: *mut Pool) -> ZoneNumbers {
    let mut zone = ZoneNumbers { size: size_of::<ZoneNumbers>() as u32, ..ZoneNumbers::default() };
    // SAFETY: the pool is open; the struct has its size.
    assert_eq!(unsafe { zonal_zone_info(pool, 0, &mut zone) }, 0);
    zone
}

#[track_caller]
fn is(code: i32, wanted: Code) {
    assert_eq!(code, wanted as i32, "{code}: {:?}", text(code));
}

fn text(code: i32) -> &'static str {
    // SAFETY: a string of C that stays.
    unsafe { CStr::from_ptr(zonal_error_text(code)) }.to_str().unwrap()
}

#[test]
fn each_code_has_a_text_of_its_own() {
    let texts: std::collections::BTreeSet<_> = (-1..21).map(text).collect();
    assert_eq!(texts.len(), 22);
    assert_eq!(text(i32::MIN), "an unknown code");
    for (at, code) in Code::ALL.into_iter().enumerate() {
        assert_eq!(code as usize, at);
    }
}

/// Of a later version, which has a field more.
#[repr(C)]
struct Newer(Settings, u64);

#[test]
fn settings_of_other_versions() {
    let mut pool = null_mut();
    let mut open = |settings: *const Settings| {
        // SAFETY: null, or as many bytes as it says.
        let code = unsafe { zonal_open(settings, &mut pool) };
        if code == 0 {
            // SAFETY: just opened.
            unsafe { zonal_close(pool) };
        }
        code
    };
    is(open(null()), Code::Null);
    // An older caller has fewer fields; a pool of no memory is not the system's refusal.
    let old = Settings { size: 16, ..SETTINGS };
    is(open(&old), Code::Ok);
    is(open(&Settings { size: 8, ..SETTINGS }), Code::Argument);
    is(open(&Settings { size: 4, ..SETTINGS }), Code::Argument);
    // A newer one has more: what is not known must not be asked for.
    let mut newer = Newer(Settings { size: size_of::<Newer>() as u32, ..SETTINGS }, 0);
    is(open((&raw const newer).cast()), Code::Ok);
    newer.1 = 1;
    is(open((&raw const newer).cast()), Code::Argument);
    // What is a kernel's says nothing here.
    is(open(&Settings { tables_below: 1, ..SETTINGS }), Code::Argument);
    is(open(&Settings { reserved: 1, ..SETTINGS }), Code::Argument);
    is(open(&Settings { bytes: u64::MAX >> 1, ..SETTINGS }), Code::Memory);
    is(open(&Settings { bytes: 0, ..SETTINGS }), Code::Argument);
    // SAFETY: refused before it is written to.
    is(unsafe { zonal_open(&SETTINGS, null_mut()) }, Code::Null);
}

#[test]
fn wrong_arguments_are_refused() {
    with(|pool| {
        let before = zone(pool);
        let mut pfn = 77;
        let mut alloc = |request: AllocRequest| {
            // SAFETY: the pointers are to variables, the pool is open.
            unsafe { zonal_alloc(pool, &request, &mut pfn) }
        };
        let plain = AllocRequest::default();
        is(alloc(AllocRequest { order: 11, ..plain }), Code::Argument);
        is(alloc(AllocRequest { migrate: 3, ..plain }), Code::Argument);
        is(alloc(AllocRequest { migrate: 200, ..plain }), Code::Argument);
        is(alloc(AllocRequest { zone_limit: 5, ..plain }), Code::Argument);
        is(alloc(AllocRequest { flags: 32, ..plain }), Code::Argument);
        is(alloc(AllocRequest { node_policy: 4, ..plain }), Code::Argument);
        is(alloc(AllocRequest { node_policy: 1, nodes: 256, ..plain }), Code::Argument);
        is(alloc(AllocRequest { zone_limit: 1, ..plain }), Code::NoZone);
        is(alloc(AllocRequest { node_policy: 2, nodes: 0, ..plain }), Code::NoZone);
        assert_eq!(pfn, 77, "nothing was written");
        // SAFETY: the pointers are null or to variables, the pool is open, and no frame is in use.
        unsafe {
            is(zonal_alloc(null(), null(), &mut pfn), Code::Null);
            is(zonal_alloc(pool, null(), null_mut()), Code::Null);
            is(zonal_free(pool, 0, 0), Code::Foreign);
            is(zonal_free(pool, u64::MAX, 0), Code::Foreign);
            is(zonal_free(pool, before.start, 0), Code::DoubleFree);
            is(zonal_free(pool, before.start, 11), Code::Argument);
            is(zonal_free(pool, before.start, u32::MAX), Code::Argument);
            is(zonal_alloc_bulk(pool, null(), null_mut(), 3), Code::Null);
            is(zonal_alloc_bulk(pool, null(), null_mut(), 0), Code::Ok);
            is(zonal_free_bulk(pool, null(), 3, null_mut()), Code::Null);
            is(zonal_alloc_pages(pool, null(), 0, 1, 0, &mut pfn), Code::Argument);
            is(zonal_alloc_pages(pool, null(), 2, 3, 0, &mut pfn), Code::Argument);
            is(zonal_alloc_pages(pool, null(), 2, 1, 1, &mut pfn), Code::Exhausted);
            is(zonal_alloc_pages(pool, null(), u64::MAX, 1, 0, &mut pfn), Code::Exhausted);
            is(zonal_free_pages(pool, before.start, 2), Code::WrongOrder);
            is(zonal_free_pages(pool, u64::MAX, 2), Code::Foreign);
            is(zonal_alloc_at(pool, u64::MAX, 2), Code::Argument);
            is(zonal_alloc_at(pool, before.start, 0), Code::Range);
            is(zonal_online(pool, before.start, 512), Code::Argument);
            is(zonal_offline(pool, before.start, 512), Code::Argument);
            is(zonal_release(pool, before.start, 1), Code::Argument);
            is(zonal_release(null(), before.start, 1), Code::Null);
            is(zonal_zone_info(pool, 9, &mut ZoneNumbers { size: 120, ..before }), Code::NoZone);
            is(zonal_zone_info(pool, 0, null_mut()), Code::Null);
            is(zonal_zone_info(pool, 0, &mut ZoneNumbers { size: 4, ..before }), Code::Argument);
            is(zonal_report(pool, 9, null_mut(), 0, null_mut()), Code::Argument);
            assert!(zonal_address(pool, 0).is_null());
            assert!(zonal_address(null(), 0).is_null());
            assert_eq!(zonal_drain(null()), 0);
            zonal_close(null_mut());
        }
        assert_eq!(zone(pool), before, "nothing has changed");
    });
}

/// Behind a pool that ends inside a pageblock the tables have room for other memory of the program.
#[test]
fn what_lies_behind_a_pool_is_not_released_to_it() {
    let settings = Settings { bytes: (16 << 20) + 4096, ..SETTINGS };
    let mut pool = null_mut();
    // SAFETY: the pointers are to variables; the pool is closed once, at the end.
    unsafe {
        is(zonal_open(&settings, &mut pool), Code::Ok);
        let before = zone(pool);
        let end = before.start + before.spanned;
        let behind = (before.start..end).find(|&pfn| zonal_address(pool, pfn).is_null()).unwrap();
        is(zonal_release(pool, behind, 1), Code::Argument);
        assert_eq!(zone(pool), before);
        zonal_close(pool);
    }
}

#[test]
fn what_is_had_is_written_and_comes_back() {
    with(|pool| {
        let before = zone(pool);
        let mut pfn = 0;
        let zeroed = AllocRequest { order: 3, flags: Flag::Zero as u32, ..AllocRequest::default() };
        // SAFETY: the pointers are to variables, the pool is open, frames are the test's own.
        unsafe {
            is(zonal_alloc(pool, &zeroed, &mut pfn), Code::Ok);
            let bytes =
                std::slice::from_raw_parts_mut(zonal_address(pool, pfn).cast::<u8>(), 8 << 12);
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(9);
            is(zonal_free(pool, pfn, 2), Code::WrongOrder);
            is(zonal_free_pages(pool, pfn, 8), Code::WrongOrder);
            is(zonal_free(pool, pfn, 3), Code::Ok);
            let mut many = [0; 100];
            is(zonal_alloc_bulk(pool, null(), many.as_mut_ptr(), 100), Code::Ok);
            many[99] = many[0];
            let (mut freed, lost) = (7, many[98]);
            is(zonal_free_bulk(pool, many.as_ptr(), 98, &mut freed), Code::Ok);
            assert_eq!(freed, 98);
            many[0] = lost;
            is(zonal_free_bulk(pool, many.as_ptr(), 2, &mut freed), Code::DoubleFree);
            assert_eq!(freed, 1, "the other one was freed");
            zonal_drain(pool);
        }
        assert_eq!(zone(pool).free, before.free - 1, "one number was overwritten above");
    });
}

#[test]
fn reports_fit_or_say_how_long_they_are() {
    with(|pool| {
        for report in 0..4 {
            let (mut needed, mut buffer) = (0, vec![1_i8; 1 << 16]);
            // SAFETY: the buffer has the room that is named; the pool is open.
            unsafe {
                is(zonal_report(pool, report, null_mut(), 0, &mut needed), Code::Buffer);
                is(zonal_report(pool, report, buffer.as_mut_ptr(), 4, null_mut()), Code::Buffer);
                assert_eq!((buffer[3], buffer[4]), (0, 1), "cut, and nothing behind it");
                is(
                    zonal_report(pool, report, buffer.as_mut_ptr(), buffer.len(), &mut needed),
                    Code::Ok,
                );
                let text = CStr::from_ptr(buffer.as_ptr()).to_str().unwrap();
                assert_eq!(text.len() + 1, needed);
                assert!(text.lines().count() >= 1, "{text}");
            }
        }
    });
}
