//! Models of the allocator, most of them of presets with a map, in one program: it is compiled once for each host and
//! preset, not again in every file.
#![cfg(loom)]

#[path = "loom_broken/fences.rs"]
mod loom_broken_fences;
#[path = "loom_broken/slots.rs"]
mod loom_broken_slots;
#[path = "loom_broken/torn.rs"]
mod loom_broken_torn;
mod loom_compactions;
mod loom_fitting;
mod loom_free_map;
mod loom_free_map_world;
mod loom_led;
mod loom_map;
mod loom_migrate_map;
mod loom_mover;
mod loom_online;
mod loom_opened;
mod loom_passage;
mod loom_reserve;
mod loom_stack;
mod loom_stay;
mod loom_undo;
#[expect(dead_code, reason = "shared by several programs")]
mod loom_world;
