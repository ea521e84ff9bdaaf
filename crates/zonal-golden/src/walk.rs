//! What it costs to choose a zone: walks and dirty limits on one node and on four.
//!
//! A case is `PRESET/MACHINE/WORKLOAD`. `one-node` has the zone types DMA (tiny), DMA32 and
//! Normal; `four-nodes` has them on node 0, where the requests come from, and Normal on three
//! others; `far-node` is the same seen from node 1. The workloads:
//!
//! - `pair`: one frame, allocated and freed;
//! - `write`: the same for a page that will be written;
//! - `low`: the same while the node is down at its low watermarks, so that every request looks at
//!   all its zones before it goes to another node.

use crate::host::{OneCpu, with_plan};
use crate::lines::{Seen, touched};
use crate::work::{Case, Outcome};
use std::error::Error;
use std::hint::black_box;
use zonal::Host;
use zonal::map::{MemoryMap, PhysAddr, Region};
use zonal::plan::{Config, Plan};
use zonal::policy::{Policy, Split};
use zonal::preset::{FairZone, LessDirty, Linux316, Linux416, Zonal};
use zonal::{Allocator, MigrateType, NodeId, Order, Request, ZoneId, ZoneType};

const MIB: u64 = 1 << 20;
/// Of each node.
const MEMORY: u64 = 512 * MIB;
/// Below are DMA and DMA32.
const DMA32: u64 = 192 * MIB;

#[derive(Clone, Copy)]
enum Machine {
    OneNode,
    FourNodes,
    FarNode,
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Pair,
    Write,
    Low,
}

impl Machine {
    const fn node(self) -> u8 {
        matches!(self, Self::FarNode) as u8
    }

    fn plan<S: Policy>(self) -> Result<Plan, Box<dyn Error>> {
        let nodes = if matches!(self, Self::OneNode) { 1 } else { 4 };
        let mut map = MemoryMap::new();
        for node in 0..nodes {
            let start = PhysAddr(u64::from(node) * MEMORY);
            map.add(Region::usable(start, MEMORY).on(NodeId(node)))?;
        }
        let config = Config { dma32_limit: zonal::Pfn::containing(DMA32), ..Config::new(1) };
        Ok(Plan::new(map.sanitise()?, config, S::Split::instances)?)
    }
}

const fn request(work: Work) -> Request {
    let page = Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
    match work {
        Work::Write => page.write(),
        _ => page,
    }
}

/// Brings the node's zones down to where the next request for a page goes elsewhere.
fn prepare<P: Host, S: Policy>(allocator: &Allocator<'_, P, S>, work: Work, node: u8) -> Outcome {
    if work == Work::Low {
        let of_node = |zone: Option<ZoneId>| {
            zone.and_then(|id| allocator.zone_info(id)).is_some_and(|zone| zone.node.0 == node)
        };
        loop {
            let pfn = allocator.alloc_raw(&request(work))?;
            if !of_node(allocator.plan().zone_at(pfn)) {
                allocator.free_raw(pfn, Order::ZERO)?;
                break;
            }
        }
    }
    // Caches filled, and every zone has had its turn.
    pairs(allocator, &request(work), 4096)
}

#[inline(never)]
fn pairs<P: Host, S: Policy>(
    allocator: &Allocator<'_, P, S>,
    request: &Request,
    iterations: u64,
) -> Outcome {
    for _ in 0..iterations {
        let pfn = black_box(allocator.alloc_raw(request)?);
        allocator.free_raw(pfn, Order::ZERO)?;
    }
    Ok(())
}

/// The case, for callgrind.
fn counted<S: Policy>(machine: Machine, work: Work, iterations: u64) -> Outcome {
    let plan = machine.plan::<S>()?;
    match machine.node() {
        0 => with_plan::<OneCpu<0>, S>(OneCpu, &plan, |on| prepared(on, work, 0, iterations)),
        _ => with_plan::<OneCpu<1>, S>(OneCpu, &plan, |on| prepared(on, work, 1, iterations)),
    }
}

fn prepared<P: Host, S: Policy>(
    allocator: &Allocator<'_, P, S>,
    work: Work,
    node: u8,
    iterations: u64,
) -> Outcome {
    prepare(allocator, work, node)?;
    pairs(allocator, &request(work), iterations)
}

/// Lines that an allocation touches, on average, in the settled state.
fn lines<S: Policy>(machine: Machine, work: Work) -> Result<f64, Box<dyn Error>> {
    const TIMES: u64 = 20_000;
    let plan = machine.plan::<S>()?;
    let mut sum = 0;
    with_plan::<_, S>(Seen { node: machine.node() }, &plan, |allocator| {
        prepare(allocator, work, machine.node())?;
        for _ in 0..TIMES {
            let mut got = None;
            sum += touched(|| got = Some(allocator.alloc_raw(&request(work))));
            let pfn = got.ok_or("nothing was asked for")??;
            allocator.free_raw(pfn, Order::ZERO)?;
        }
        Ok(())
    })?;
    Ok(sum as f64 / TIMES as f64)
}

/// A case and how many lines an allocation of it touches.
pub(crate) struct Lines {
    pub(crate) name: &'static str,
    pub(crate) of: fn() -> Result<f64, Box<dyn Error>>,
}

macro_rules! cases {
    ($($preset:ident / $name:literal $machine:ident / $what:literal $work:ident;)*) => {
        pub(crate) static CASES: &[Case] = &[$(Case {
            name: concat!(stringify!($preset), "/", $name, "/", $what),
            iterations: 20_000,
            blocks: 1,
            run: |n| counted::<$preset>(Machine::$machine, Work::$work, n),
        }),*];

        pub(crate) static LINES: &[Lines] = &[$(Lines {
            name: concat!(stringify!($preset), "/", $name, "/", $what),
            of: || lines::<$preset>(Machine::$machine, Work::$work),
        }),*];
    };
}

cases! {
    Linux416 / "one-node" OneNode / "pair" Pair;
    Linux316 / "one-node" OneNode / "pair" Pair;
    FairZone / "one-node" OneNode / "pair" Pair;
    Zonal / "one-node" OneNode / "pair" Pair;
    Linux416 / "four-nodes" FourNodes / "pair" Pair;
    Linux316 / "four-nodes" FourNodes / "pair" Pair;
    FairZone / "four-nodes" FourNodes / "pair" Pair;
    Zonal / "four-nodes" FourNodes / "pair" Pair;
    Linux416 / "far-node" FarNode / "pair" Pair;
    Linux316 / "far-node" FarNode / "pair" Pair;
    FairZone / "far-node" FarNode / "pair" Pair;
    Linux416 / "four-nodes" FourNodes / "low" Low;
    Linux316 / "four-nodes" FourNodes / "low" Low;
    FairZone / "four-nodes" FourNodes / "low" Low;
    Linux316 / "one-node" OneNode / "write" Write;
    FairZone / "one-node" OneNode / "write" Write;
    LessDirty / "one-node" OneNode / "write" Write;
    Zonal / "one-node" OneNode / "write" Write;
    FairZone / "four-nodes" FourNodes / "write" Write;
    LessDirty / "four-nodes" FourNodes / "write" Write;
}
