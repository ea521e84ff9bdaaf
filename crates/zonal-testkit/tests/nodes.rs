//! Node policies: whose memory a request gets.

use zonal::error::AllocReason;
use zonal::plan::Config;
use zonal::policy::Policy;
use zonal::preset::{FairZone, Linux63, Linux316, Linux416, Zonal};
use zonal::{CpuId, NodeId, NodeMask, NodePolicy, Order, Pfn, Request, ZoneType};
use zonal_testkit::host::TestHost;
use zonal_testkit::probe::Probe;
use zonal_testkit::shape::{Shape, order, plan};
use zonal_testkit::world::{World, with_plan, with_world};

type W<'m, S> = World<'m, Probe, S>;

fn mask(nodes: &[u8]) -> NodeMask {
    nodes.iter().fold(NodeMask::NONE, |mask, &node| mask.with(NodeId(node)))
}

/// The node of the block that the request gets on `cpu`; the block stays out.
fn node<S: Policy>(world: &W<'_, S>, cpu: u32, request: &Request) -> Result<u8, AllocReason> {
    let allocator = &world.allocator;
    allocator.platform().switch_cpu(CpuId(cpu));
    let pfn = allocator.alloc_raw(request).map_err(|error| error.reason)?;
    let zone = allocator.plan().zone_at(pfn).expect("memory has a zone");
    Ok(allocator.zone_info(zone).expect("the zone exists").node.0)
}

/// How many blocks of `request` come from each of the two nodes until there is none.
fn drained<S: Policy>(world: &W<'_, S>, cpu: u32, request: &Request) -> [u64; 2] {
    let mut of = [0; 2];
    while let Ok(node) = node(world, cpu, request) {
        of[usize::from(node)] += 1;
    }
    of
}

fn with<S: Policy>(f: impl FnOnce(&W<'_, S>)) {
    with_world::<Probe, S, _>(Shape::TwoNodes, f);
}

/// Managed frames of the nodes of `Shape::TwoNodes`.
const MANAGED: [u64; 2] = [1248, 800];

fn local<S: Policy>() {
    with::<S>(|world| {
        for cpu in [0, 1, 0, 1] {
            for size in [0, 0, 1, 4] {
                assert_eq!(node(world, cpu, &Request::new(order(size))), Ok(cpu as u8));
            }
        }
        let of = drained(world, 1, &Request::frame());
        assert!(of[0] > 1100 && of[1] > 700, "then from the other: {of:?}");
    });
}

fn preferred<S: Policy>() {
    with::<S>(|world| {
        let request = |node| Request::frame().nodes(NodePolicy::Preferred(NodeId(node)));
        assert_eq!(node(world, 0, &request(1)), Ok(1));
        assert_eq!(node(world, 1, &request(0)), Ok(0));
        assert_eq!(node(world, 1, &request(9)), Ok(0), "a node without memory: its neighbour");
        assert_eq!(drained(world, 0, &request(1).this_node())[0], 0);
        assert_eq!(node(world, 0, &request(1)), Ok(0), "preferred, not required");
        assert_eq!(node(world, 0, &request(9).this_node()), Err(AllocReason::NoZone));
    });
}

fn bind<S: Policy>() {
    with::<S>(|world| {
        let request = |nodes: &[u8]| Request::frame().nodes(NodePolicy::Bind(mask(nodes)));
        assert_eq!(node(world, 0, &request(&[0, 1])), Ok(0), "the nearest");
        assert_eq!(node(world, 1, &request(&[0, 1])), Ok(1), "the nearest");
        assert_eq!(node(world, 0, &request(&[1]).this_node()), Err(AllocReason::NoZone));
        assert_eq!(drained(world, 0, &request(&[1])), [0, MANAGED[1] - 1]);
        assert_eq!(node(world, 0, &request(&[1])), Err(AllocReason::Exhausted));
        assert_eq!(node(world, 0, &request(&[2, 15])), Err(AllocReason::NoZone));
        assert_eq!(drained(world, 1, &request(&[0])), [MANAGED[0] - 1, 0]);
    });
}

fn interleave<S: Policy>() {
    for nodes in [mask(&[0, 1]), NodeMask::ALL] {
        with::<S>(|world| {
            let request = Request::frame().nodes(NodePolicy::Interleave(nodes));
            let first: Vec<_> = (0..100).map(|_| node(world, 0, &request).unwrap()).collect();
            let of_one = first.iter().filter(|&&node| node == 1).count();
            assert_eq!(of_one, 50, "in turn: {first:?}");
            assert_eq!(drained(world, 0, &request), [MANAGED[0] - 50, MANAGED[1] - 50]);
        });
    }
    with::<S>(|world| {
        let request = |nodes: &[u8]| Request::frame().nodes(NodePolicy::Interleave(mask(nodes)));
        assert_eq!(node(world, 0, &request(&[1])), Ok(1));
        assert_eq!(node(world, 1, &request(&[])), Ok(1), "no node: the local one");
        assert_eq!(node(world, 1, &request(&[7])), Ok(1), "none with memory: the local one");
    });
}

fn this_node<S: Policy>() {
    with::<S>(|world| {
        let request = Request::frame().this_node();
        assert_eq!(drained(world, 1, &request), [0, MANAGED[1]]);
        assert_eq!(node(world, 1, &request), Err(AllocReason::Exhausted));
        assert_eq!(node(world, 1, &Request::frame()), Ok(0));
        // What another node's frames in this CPU's cache are no answer to.
        assert_eq!(node(world, 1, &request), Err(AllocReason::Exhausted));
    });
}

/// A CPU whose node lacks the zone type: the home zone is on another node, and a request for
/// this node may not have from there, not even from the cache.
fn this_node_without_the_zone<S: Policy>() {
    with_world::<Probe, S, _>(Shape::Marked, |world| {
        let dma = Request::frame().zone_limit(ZoneType::Dma);
        assert_eq!(node(world, 1, &dma), Ok(0), "and this fills the cache");
        for size in [0, 1] {
            let request = dma.with_order(order(size));
            assert_eq!(node(world, 1, &request), Ok(0));
            assert_eq!(node(world, 1, &request.this_node()), Err(AllocReason::NoZone));
        }
    });
}

/// Frees go to the zone they are from, whichever CPU frees them.
fn frees_go_home<S: Policy>() {
    with::<S>(|world| {
        let allocator = &world.allocator;
        allocator.platform().switch_cpu(CpuId(0));
        let far = Request::frame().nodes(NodePolicy::Bind(mask(&[1])));
        let pfns: Vec<_> = (0..300).map(|_| allocator.alloc_raw(&far).unwrap()).collect();
        for pfn in pfns {
            allocator.free_raw(pfn, Order::ZERO).unwrap();
        }
        allocator.drain_all();
        let free = |id| allocator.zone_info(zonal::ZoneId(id)).unwrap().free;
        assert_eq!([free(0), free(1)], MANAGED);
    });
}

macro_rules! on_presets {
    ($($module:ident: $preset:ty;)*) => {$(
        mod $module {
            use super::*;
            #[test]
            fn the_local_node() { local::<$preset>(); }
            #[test]
            fn a_preferred_node() { preferred::<$preset>(); }
            #[test]
            fn bound_nodes() { bind::<$preset>(); }
            #[test]
            fn nodes_in_turn() { interleave::<$preset>(); }
            #[test]
            fn only_this_node() { this_node::<$preset>(); }
            #[test]
            fn only_this_node_that_lacks_the_zone() { this_node_without_the_zone::<$preset>(); }
            #[test]
            fn frees_go_to_their_node() { frees_go_home::<$preset>(); }
        }
    )*};
}

with_presets!(on_presets);

/// A zone limit that no zone fits leads to no cache, however many CPUs there are: not even that
/// of a CPU whose cache is as far along as the number that stands for no zone.
#[test]
fn a_limit_without_zones_is_no_cpus_home() {
    fn refused<S: Policy>() {
        let config =
            Config { dma_limit: Pfn::new(0), dma32_limit: Pfn::new(1024), ..Shape::Low.config() };
        let config = Config { cpus: 300, ..config };
        let plan = plan::<S>(&Shape::Low.regions(), config);
        with_plan::<Probe, S, _>(Shape::Low, &plan, |world: &W<'_, S>| {
            // A frame in every cache of either zone.
            for cpu in 0..300 {
                for limit in [ZoneType::Dma32, ZoneType::Normal] {
                    let mut handle = world.allocator.handle(CpuId(cpu)).unwrap();
                    let request = Request::frame().zone_limit(limit);
                    let pfn = handle.alloc_raw(&request).unwrap();
                    handle.free_raw(pfn, Order::ZERO).unwrap();
                }
            }
            for cpu in 0..300 {
                world.allocator.platform().switch_cpu(CpuId(cpu));
                let request = Request::frame().zone_limit(ZoneType::Dma);
                let error = world.allocator.alloc(&request).unwrap_err();
                assert_eq!(error.reason, AllocReason::NoZone, "{} on CPU {cpu}", S::NAME);
            }
        });
    }
    refused::<Linux416>();
    refused::<Linux316>();
    refused::<FairZone>();
    refused::<Zonal>();
}

/// A refused request takes one turn, as one that is served, and says whose it was; an explanation
/// takes none, and is about the last.
#[test]
fn every_interleaved_request_takes_one_turn() {
    fn turns<S: Policy>() {
        with::<S>(|world| {
            let allocator = &world.allocator;
            let request = Request::frame().nodes(NodePolicy::Interleave(mask(&[0, 1])));
            let node_of = |zone| allocator.zone_info(zone).unwrap().node.0;
            let mut out: [Vec<Pfn>; 2] = [Vec::new(), Vec::new()];
            while let Ok(pfn) = allocator.alloc_raw(&request) {
                let zone = allocator.plan().zone_at(pfn).unwrap();
                out[usize::from(node_of(zone))].push(pfn);
            }
            let refused = |request: &Request| {
                let error = allocator.alloc_raw(request).unwrap_err();
                let zones = if request.is_this_node() { 1 } else { 2 };
                assert_eq!((error.reason, error.tried), (AllocReason::Exhausted, zones));
                node_of(error.zone.unwrap())
            };
            let explained = || allocator.explain(&request).zones[0].unwrap().node.0;
            for request in [request, request.this_node()] {
                let nodes: Vec<_> = (0..4).map(|_| refused(&request)).collect();
                assert_eq!(nodes, [nodes[0], 1 - nodes[0], nodes[0], 1 - nodes[0]], "{}", S::NAME);
            }

            for pfn in out.iter().flat_map(|frames| &frames[..8]) {
                allocator.free_raw(*pfn, Order::ZERO).unwrap();
            }
            for _ in 0..2 {
                let served = || node(world, 0, &request).unwrap();
                let first = served();
                assert_eq!([explained(), explained()], [first; 2], "{}", S::NAME);
                assert_eq!(served(), 1 - first, "the explanations took no turn");
                assert_eq!(refused(&request.with_order(Order::MAX)), first);
                assert_eq!(explained(), first);
                assert_eq!(served(), 1 - first, "one was refused");
            }
        });
    }
    turns::<Linux416>();
    turns::<Linux63>();
    turns::<Zonal>();
}
