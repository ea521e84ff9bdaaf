//! Which cache line an address is on.
//!
//! Memory of the allocator and of the work around it is registered in ranges; lines are counted
//! from the start of a range, so that they do not depend on where the host put it.

use crate::lines::LINE;
use core::num::NonZeroU32;

/// How the bytes of a range lie on cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As they lie in the host's memory.
    Packed,
    /// Every item of so many bytes on lines of its own, beginning with that of the number
    /// `first + index * stride`: metadata of a frame in the frame's `struct page`.
    Spread {
        /// Bytes of an item.
        item: NonZeroU32,
        /// The line of the first item.
        first: u32,
        /// Lines from one item to the next.
        stride: u32,
    },
}

/// On which socket's memory a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In equal parts on all sockets, in the order of addresses.
    Divided,
    /// On that of whoever asks: per-CPU memory.
    Local,
    /// On one socket.
    Socket(u8),
}

/// What a range is: names its lines in a profile, its locks in the count of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub &'static str);

/// A range of host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    pub(crate) class: u8,
    pub(crate) layout: Layout,
    pub(crate) home: Home,
    /// The first line of a packed range.
    pub(crate) first: usize,
}

/// A line and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) class: u8,
    /// The socket its memory is on; `None`: that of the asker.
    pub(crate) home: Option<u8>,
}

/// All ranges. Few: they are searched in the order they were added.
#[derive(Debug, Default)]
pub(crate) struct Space {
    ranges: Vec<Range>,
    pub(crate) classes: Vec<Class>,
    sockets: usize,
}

impl Space {
    pub(crate) fn new(sockets: usize) -> Self {
        Self { ranges: Vec::new(), classes: Vec::new(), sockets }
    }

    /// The number of a class.
    pub(crate) fn class(&mut self, class: Class) -> u8 {
        let found = self.classes.iter().position(|&known| known == class);
        found.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        }) as u8
    }

    pub(crate) fn add(&mut self, range: Range) {
        self.ranges.push(range);
    }

    /// Where an address is; `None` if it was never registered.
    #[inline]
    pub(crate) fn place(&self, address: usize) -> Option<Place> {
        let range = self.ranges.iter().find(|r| address.wrapping_sub(r.start) < r.bytes)?;
        let offset = address - range.start;
        let line = match range.layout {
            Layout::Packed => range.first + offset / LINE,
            Layout::Spread { item, first, stride } => {
                first as usize + offset / item.get() as usize * stride as usize
            }
        };
        let home = match range.home {
            Home::Local => None,
            Home::Socket(socket) => Some(socket),
            Home::Divided => Some((offset * self.sockets / range.bytes) as u8),
        };
        Some(Place { line, class: range.class, home })
    }
}
