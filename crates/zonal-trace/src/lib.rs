//! What the trace events of the page-frame allocator `zonal` become: records in a [ring], two
//! words ([`pack`]), or the [text] that Linux prints, with its names of allocation flags
//! ([`gfp`]).
//!
//! The allocator itself knows the [events](zonal::policy::trace) and the
//! [policy](zonal::policy::Trace) that is told of them, and nothing of what is kept.
//!
//! ```
//! use core::sync::atomic::AtomicU64;
//! use zonal::policy::trace::{Event, Point};
//! use zonal::{CpuId, Order, Pfn};
//! use zonal_trace::ring::{Ring, words_for};
//! use zonal_trace::text::Text;
//!
//! let words = [const { AtomicU64::new(0) }; words_for(16)];
//! let ring = Ring::new(&words);
//! assert!(ring.record(12, CpuId(0), &Event::Free { pfn: Pfn::new(7), order: Order::HUGE }));
//! let record = ring.reader().read().expect("a record");
//! let line = format!("{}: {}", record.event.name(), Text(record.event));
//! assert_eq!(line, "mm_page_free: page=ffffea00000001c0 pfn=0x7 order=9");
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod gfp;
pub mod pack;
pub mod ring;
pub mod text;
