//! A many-core machine in a box.
//!
//! The allocator's source runs, unchanged, on hundreds of virtual CPUs. Each is a coroutine with
//! a clock in cycles; every access to an atomic of the [`platform`] and every [lock] charges
//! it what the [machine] says that a cache line at that distance costs. The CPU with the
//! smallest clock runs next, so that a run follows from its machine, its
//! [`Spec`](run::Spec) and its seed, to the cycle.
//!
//! ```
//! use zonal_sim::machine;
//! use zonal_sim::run::{LruLock, Preset, Spec, Workload, run};
//!
//! let desktop = machine::builtin("desktop_8cpu_4g").expect("it is built in");
//! let workload = Workload::Netperf;
//! let on = |preset| {
//!     let lru = LruLock::of(preset);
//!     let spec = Spec { workload, preset, tasks: 4, seed: 1, lru, delay_ms: 0, quick: true, after: None, regions: None };
//!     run(&desktop, &spec)
//! };
//! let (base, zonal) = (on(Preset::Linux416)?, on(Preset::Zonal)?);
//! assert!(zonal.spin_percent("zone") <= base.spin_percent("zone"));
//! assert_eq!(on(Preset::Zonal)?, zonal, "the same to the cycle");
//! # Ok::<(), zonal_sim::run::SimError>(())
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | [`machine`] | machine files: sockets, clocks, caches, costs; seven are built in |
//! | [`mod@run`], [`outcome`] | what to run, and what it showed: figures, waiting by lock, accesses by class of line |
//! | [`replay`] | what the CPUs of a trace did, to be done again |
//! | [`platform`], [`lock`], [`slot`] | the allocator's host: accesses, spinlocks, per-CPU slots in virtual time |
//! | [`confined`] | the lock of the page cache of `zonal-cache`, whose host is the same |
//! | [`lines`] | who has a cache line and from where it is served |
//! | [`mix`], [`ticks`] | what a build asks of memory; virtual time |
//! | [`explore`] | the same CPUs under random schedules, to look for races |
//!
//! Outside of a run the platform's atomics and locks work and cost nothing, on one thread.
//!
//! What the model leaves out is written in `docs/book/src/simulator.md`, how the machines' constants
//! were fitted and where it is wrong in `docs/book/src/reproduction.md`; `ARCHITECTURE.md` follows one
//! access through the source.

mod any_allocator;
mod cache;
mod channel;
pub mod confined;
mod coroutine;
mod current;
mod engine;
pub mod explore;
mod host;
pub mod lines;
pub mod lock;
mod lru;
mod lru_lock;
pub mod machine;
mod memory;
pub mod mix;
mod off;
pub mod outcome;
pub mod platform;
mod profile;
pub mod replay;
pub mod run;
mod schedule;
mod sleeper;
pub mod slot;
mod space;
mod space_lock;
mod speeds;
mod task;
pub mod ticks;
mod transfers;
mod workload;
mod world;
