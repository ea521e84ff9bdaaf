//! Models of the allocator, most of them of presets with buddy lists, in one program: it is compiled once for each host
//! and preset, not again in every file.
#![cfg(loom)]

#[path = "loom_broken/mod.rs"]
mod loom_broken;
#[path = "loom_broken/bulk_free.rs"]
mod loom_broken_bulk_free;
#[path = "loom_broken/clusters.rs"]
mod loom_broken_clusters;
#[path = "loom_broken/slots.rs"]
mod loom_broken_slots;
mod loom_bulk_free;
mod loom_cutting;
mod loom_drain;
mod loom_fair;
mod loom_lazy;
mod loom_migrate;
mod loom_mover;
mod loom_trace_ring;
#[expect(dead_code, reason = "shared by several programs")]
mod loom_world;
