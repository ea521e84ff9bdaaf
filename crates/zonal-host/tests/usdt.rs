//! The probes are in the binary: what `readelf -n` shows of this very test.

use std::collections::BTreeMap;
use std::process::Command;
use zonal::policy::trace::{Event, Lru, PageFlags, Point, ReclaimFlags, Trace};
use zonal::preset::{Linux416, Traced};
use zonal::{MigrateType, NodeId, Order, Pfn, Request};
use zonal_host::{Arena, Usdt};

/// Makes the linker keep every probe.
fn use_all() {
    type Preset = Traced<Linux416, Usdt>;
    let arena = Arena::builder().preset::<Preset>().bytes(16 << 20).open().expect("an arena");
    for order in [Order::ZERO, Order::HUGE] {
        let request = Request::new(order).migrate(MigrateType::Reclaimable);
        drop(arena.alloc(&request).expect("memory"));
    }
    let mut frames = [Pfn::default(); 100];
    arena.alloc_bulk(&Request::frame(), &mut frames).expect("memory");
    // SAFETY: allocated just above, and not looked into.
    let freed = unsafe { arena.free_bulk(&frames) };
    assert_eq!(freed.refused, 0);
    let pfn = Pfn::new(1);
    let flags = PageFlags(PageFlags::FILE);
    Usdt::emit(Point::LruInsertion, || Event::LruInsertion { pfn, lru: Lru::InactiveFile, flags });
    Usdt::emit(Point::LruActivate, || Event::LruActivate { pfn });
    Usdt::emit(Point::VmscanLruIsolate, || Event::VmscanLruIsolate {
        classzone: 0,
        order: Order::ZERO,
        requested: 32,
        scanned: 32,
        skipped: 0,
        taken: 1,
        lru: Lru::InactiveFile,
    });
    Usdt::emit(Point::VmscanLruShrinkInactive, || Event::VmscanLruShrinkInactive {
        node: NodeId(0),
        scanned: 32,
        reclaimed: 1,
        dirty: 0,
        writeback: 0,
        activate: 0,
        ref_keep: 0,
        priority: 12,
        flags: ReclaimFlags(ReclaimFlags::FILE),
    });
    Usdt::emit(Point::VmscanLruShrinkActive, || Event::VmscanLruShrinkActive {
        node: NodeId(0),
        taken: 32,
        active: 1,
        deactivated: 31,
        referenced: 1,
        priority: 12,
        flags: ReclaimFlags(ReclaimFlags::FILE),
    });
}

/// Probes of the provider `zonal`: name, arguments, and whether it has a semaphore. A place in the
/// first page is that of code that the linker threw away.
fn probes(notes: &str) -> BTreeMap<String, (usize, bool)> {
    let mut found = BTreeMap::new();
    let (mut ours, mut name, mut semaphore) = (false, String::new(), false);
    for line in notes.lines() {
        if let Some(provider) = line.trim().strip_prefix("Provider: ") {
            ours = provider == "zonal";
        } else if let Some(text) = line.trim().strip_prefix("Name: ") {
            name = text.to_owned();
        } else if let Some((places, address)) = line.split_once("Semaphore: ") {
            semaphore = number(address) != 0;
            let location = places.trim().strip_prefix("Location: ").unwrap_or_default();
            let location = number(location.split(',').next().unwrap_or_default());
            assert!(!ours || location >= 4096, "{name} is nowhere: {line}");
        } else if let Some(arguments) = line.trim().strip_prefix("Arguments:")
            && ours
        {
            found.insert(name.clone(), (arguments.split_whitespace().count(), semaphore));
        }
    }
    found
}

fn number(hex: &str) -> u64 {
    u64::from_str_radix(hex.trim_start_matches("0x"), 16).expect("an address")
}

#[test]
fn readelf_shows_every_probe_with_arguments_and_a_semaphore() {
    use_all();
    let this = std::env::current_exe().expect("a test is a file");
    let Ok(readelf) = Command::new("readelf").arg("-n").arg(this).output() else {
        eprintln!("SKIPPED: there is no readelf here, so the probes were not looked for");
        return;
    };
    let found = probes(&String::from_utf8_lossy(&readelf.stdout));
    let arguments = [4, 2, 1, 4, 7, 3, 1, 7, 9, 7];
    for (point, arguments) in Point::ALL.into_iter().zip(arguments) {
        assert_eq!(found.get(point.name()), Some(&(arguments, true)), "{point} in {found:?}");
    }
}
