#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cfq;
pub mod counters;
pub mod deadline;
pub mod elevator;
pub mod noop;
pub mod policy;
pub mod request;
pub mod table;
pub mod units;

/// A program that users read and copy: compiled and run as an example of the documentation.
#[cfg(doctest)]
mod page {
    #[doc = include_str!("../../../docs/book/src/io-schedulers.md")]
    struct IoSchedulers;
}
