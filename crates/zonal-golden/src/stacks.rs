//! Through which functions the core reaches its memory: the stacks at each access to a word or a
//! lock of the platform, as `cargo xtask paths` compares them with ARCHITECTURE.md.
//!
//! They are whole only where nothing is inlined or left by a jump: in a build without
//! optimisation.

use crate::host::with_plan;
use crate::lines::Seen;
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::policy::{Policy, Split};
use zonal::watermark::{MinFree, WatermarkConfig};
use zonal::{Allocator, MigrateType, Order, Pfn, Request};

const MEMORY: u64 = 64 << 20;
/// Of no cache, so that a free goes to the free lists at once.
const UNCACHED: Order = match Order::new(5) {
    Some(order) => order,
    None => Order::ZERO,
};
/// Where the files of the core are, as the compiler writes it down.
const SOURCES: &str = "crates/zonal/src/";

thread_local! {
    static STACKS: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
}

/// Keeps the stack of an access, if stacks are wanted.
pub(crate) fn note(writes: bool) {
    STACKS.with_borrow_mut(|stacks| {
        if let Some(stacks) = stacks {
            let kind = if writes { "write" } else { "read" };
            stacks.insert(format!("{kind}{}", of_core(&Backtrace::force_capture())));
        }
    });
}

/// ` FUNCTION FILE` for each function of the core, from the outermost on. A closure is part of
/// the function that it is written in.
fn of_core(trace: &Backtrace) -> String {
    let text = trace.to_string();
    let mut frames: Vec<String> = Vec::new();
    let mut function = "";
    for line in text.lines().map(str::trim) {
        let Some(place) = line.strip_prefix("at ") else {
            function = line.split_once(": ").map_or(line, |(_, function)| function);
            continue;
        };
        let Some((_, file)) = place.split_once(SOURCES) else { continue };
        let file = file.split(':').next().unwrap_or(file);
        let name = name(function);
        // `{closure#0}`, or `{{closure}}` in the older way to write symbols.
        if !name.starts_with('{') {
            frames.push(format!(" {name} {file}"));
        }
    }
    frames.reverse();
    frames.concat()
}

/// The last segment of a path, without type arguments.
fn name(path: &str) -> &str {
    let path = without_arguments(path);
    path.rsplit("::").next().unwrap_or(path)
}

/// `path` without `<..>` or `::<..>` at its end.
fn without_arguments(path: &str) -> &str {
    let mut depth = 0;
    for (at, byte) in path.bytes().enumerate().rev() {
        match byte {
            // Of `->`.
            b'>' if path[..at].ends_with('-') => {}
            b'>' => depth += 1,
            b'<' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if byte == b'<' { path[..at].trim_end_matches(':') } else { path };
        }
    }
    path
}

/// Runs `f` and prints the stacks of its accesses.
fn recorded<T>(path: &str, f: impl FnOnce() -> T) -> T {
    STACKS.set(Some(BTreeSet::new()));
    let result = f();
    for stack in STACKS.take().unwrap_or_default() {
        println!("{path} {stack}");
    }
    result
}

/// Prints a line for each stack of one allocation that the caches cannot serve, and of one free
/// that no cache takes: `miss` or `free`, `read` or `write`, and the core's functions, each with its
/// file.
pub(crate) fn run<S: Policy>() -> Result<(), Box<dyn Error>> {
    let map = MemoryMap::from_regions(&[Region::usable(PhysAddr(0), MEMORY)])?.sanitise()?;
    let config = Config {
        dma_limit: Pfn::new(0),
        dma32_limit: Pfn::new(0),
        watermarks: WatermarkConfig { min_free: MinFree::None, ..WatermarkConfig::default() },
        ..Config::new(1)
    };
    let plan = Plan::new(map, config, S::Split::instances)?;
    with_plan(Seen::default(), &plan, |allocator: &Allocator<'_, _, S>| {
        let page = Request::frame().migrate(MigrateType::Movable);
        let large = Request::new(UNCACHED).migrate(MigrateType::Movable);
        // All memory has been used before and is on the free lists.
        let mut pfns = Vec::new();
        while let Ok(pfn) = allocator.alloc_raw(&page) {
            pfns.push(pfn);
        }
        for pfn in pfns {
            allocator.free_raw(pfn, Order::ZERO)?;
        }
        allocator.drain_all();
        let pfn = allocator.alloc_raw(&large)?;
        let block = recorded("miss", || allocator.alloc(&page))?;
        recorded("free", || allocator.free_raw(pfn, UNCACHED))?;
        Ok(allocator.free(block)?)
    })
}
