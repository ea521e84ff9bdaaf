//! An allocator on a simulated machine: its tables, laid out on cache lines.

use crate::current;
use crate::engine;
use crate::machine::Machine;
use crate::memory;
use crate::platform::Sim;
use crate::run::SimError;
use crate::space::{Home, Layout};
use crate::task::Pages;
use core::num::NonZeroU32;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::policy::FreeMemory;
use zonal::policy::{Policy, Split};
use zonal::zone::tables::FreeWords;
use zonal::{Allocator, NodeId, Pfn, TableSize};
use zonal_tables::HeapTables;

/// Where memory begins: above what belongs to DMA zones, so that each node has one zone.
pub(crate) const START: u64 = 4 << 30;
/// Frames of a node come in whole largest blocks.
pub(crate) const LARGEST: u64 = 1024;

/// Plans memory: `frames` for each socket.
pub(crate) fn plan<S: Policy>(
    machine: &Machine,
    frames: u64,
    config: impl FnOnce(Config) -> Config,
) -> Result<Plan, SimError> {
    let bytes = frames.next_multiple_of(LARGEST) * 4096;
    let node = |node: u16| {
        let start = PhysAddr(START + u64::from(node) * bytes);
        Region::usable(start, bytes).on(NodeId(node as u8))
    };
    let regions: Vec<_> = (0..machine.topology.sockets).map(node).collect();
    let map = MemoryMap::from_regions(&regions).and_then(|map| map.sanitise());
    let map = map.map_err(|error| SimError::Build(error.to_string()))?;
    let none = Pfn::containing(0);
    let base =
        Config { dma_limit: none, dma32_limit: none, ..Config::new(machine.topology.cpus()) };
    Plan::new(map, config(base), S::Split::instances)
        .map_err(|error| SimError::Build(error.to_string()))
}

/// The host of callbacks goes before the allocator whose frames it may have, when this is dropped.
struct HostGoes;

impl Drop for HostGoes {
    fn drop(&mut self) {
        // Not with the engine borrowed: what it drops may give frames back.
        drop(engine::with(|engine| engine.host.take()).flatten());
    }
}

/// Runs `f` with an allocator over `plan` on this thread's machine.
pub(crate) fn with_allocator<S: Policy, R>(
    machine: &Machine,
    plan: &Plan,
    f: impl FnOnce(&Allocator<'_, Sim, S>, Pages) -> R,
) -> Result<R, SimError> {
    let frames = TableSize::of::<S>(plan).frames;
    let tables = HeapTables::<Sim, S>::advised(plan, memory::advise_huge);
    let mut tables = tables.map_err(|error| SimError::Build(error.to_string()))?;
    let storage = tables.storage();
    let FreeWords([first_words, second_words, third_words]) = storage.free;
    let pages = engine::with(|engine| {
        let stride = machine.cache.struct_page_bytes / 64;
        let first = engine.try_grow(frames as usize * stride as usize)?;
        let page = |item: u32| Layout::Spread {
            item: NonZeroU32::new(item).expect("items have bytes"),
            first: first as u32,
            stride,
        };
        let listed = is_listed::<S>();
        let in_page = |item| if listed { page(item) } else { Layout::Packed };
        let names = match listed {
            true => ["frames", "clusters", "cluster links"],
            false => ["map lines", "map hints", "map summaries"],
        };
        let shared = core::slice::from_ref(storage.shared);
        engine.register("frames", storage.states, in_page(1), Home::Divided);
        engine.register(names[0], first_words, in_page(8), Home::Divided);
        engine.register("caches", storage.caches, Layout::Packed, Home::Local);
        engine.register("frames of CPUs", storage.outside, Layout::Packed, Home::Local);
        engine.register("zone", storage.zones, Layout::Packed, Home::Divided);
        engine.register("pageblocks", storage.pageblocks, Layout::Packed, Home::Divided);
        engine.register(names[2], third_words, in_page(8), Home::Divided);
        engine.register(names[1], second_words, Layout::Packed, Home::Divided);
        engine.register("shared", shared, Layout::Packed, Home::Local);
        Ok(Pages {
            base: plan_base(plan),
            frames,
            first,
            stride: stride as usize,
            class: engine.class("pages"),
            sockets: u64::from(machine.topology.sockets),
        })
    });
    let pages =
        pages.unwrap_or_else(|| Err(SimError::Build("no machine on this thread".into())))?;
    let allocator = Allocator::new(Sim::new(machine.topology), plan, storage)
        .map_err(|error| SimError::Build(error.to_string()))?;
    engine::with(|engine| engine.cache.pages = Some(pages));
    Ok(current::scope(&allocator, || {
        let _goes = HostGoes;
        f(&allocator, pages)
    }))
}

/// Runs `f` with an allocator over `plan` that is on no machine yet: for random schedules, where costs play no part.
#[cfg(test)]
pub(crate) fn with_allocator_alone<S: Policy, R>(
    machine: &Machine,
    plan: &Plan,
    f: impl FnOnce(&Allocator<'_, Sim, S>) -> R,
) -> Result<R, SimError> {
    let build = |error: &dyn core::fmt::Display| SimError::Build(error.to_string());
    let tables = HeapTables::<Sim, S>::advised(plan, memory::advise_huge);
    let mut tables = tables.map_err(|error| build(&error))?;
    let allocator = Allocator::new(Sim::new(machine.topology), plan, tables.storage());
    let allocator = allocator.map_err(|error| build(&error))?;
    Ok(current::scope(&allocator, || f(&allocator)))
}

/// Whether the preset keeps free frames on lists through their metadata, as Linux does.
pub(crate) fn is_listed<S: Policy>() -> bool {
    S::Free::LOCKED
}

/// The first frame of the table.
fn plan_base(plan: &Plan) -> Pfn {
    let starts = plan.zones().iter().map(|zone| zone.start);
    starts.min().unwrap_or(Pfn::containing(START))
}
