//! Tests for page-frame allocators built on [`zonal`]: a model, commands, checkers, suites.
//!
//! Everything is generic over the platform and the preset, so a new host or policy gets the
//! whole suite for one line:
//!
//! | module | what it has |
//! |---|---|
//! | [`shape`] | small memory maps: holes, nodes, zones, CMA, watermarks, pageblock sizes |
//! | [`world`] | an allocator over such a map, with its tables |
//! | [`host`], [`probe`] | hosts for tests; the probe sees every lock and every callback |
//! | [`mover`] | how a host moves pages, or does not |
//! | [`lists`] | lists of frames freed by another policy, and hooks between its passes |
//! | [`command`] | what can be done to an allocator; made by proptest or from bytes, printed as source |
//! | [`model`] | which blocks are out, and what must be refused or served because of that |
//! | [`snapshot`], [`checkers`] | all frames, and the invariants I-1 to I-7 over them |
//! | [`runner`], [`suite`] | commands run with every checker after every step; threads at random |
//!
//! ```
//! use zonal_testkit::command::{Ask, Command};
//! use zonal_testkit::runner::run_commands;
//! use zonal_testkit::shape::Shape;
//! use zonal::platform::single::SingleThread;
//! use zonal::preset::Linux416;
//!
//! let commands = [Command::Alloc(Ask { order: 3, ..Ask::FRAME }), Command::Free { nth: 0 }];
//! run_commands::<SingleThread, Linux416>(Shape::Flat, &commands).unwrap();
//! ```
#![forbid(unsafe_code)]

pub mod canary;
pub mod checkers;
pub mod cluster_check;
pub mod command;
pub mod host;
pub mod lists;
#[cfg(loom)]
pub mod loom_platform;
pub mod model;
pub mod mover;
pub mod preset;
pub mod probe;
pub mod runner;
pub mod sealed;
pub mod shape;
pub mod snapshot;
pub mod suite;
pub mod world;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
