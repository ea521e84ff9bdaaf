//! Which cache line an address is on.
//!
//! Memory of the allocator and of the work around it is registered in ranges; lines are counted
//! from the start of a range, so that they do not depend on where the host put it.

use crate::lines::LINE;
use crate::memory;
use core::num::NonZeroU32;

/// How the bytes of a range lie on cache lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As they lie in the host's memory.
    Packed,
    /// Every item of `item` bytes on lines of its own, beginning with that of the number
    /// `first + index * stride`: metadata of a frame in the frame's `struct page`.
    Spread {
        /// Bytes of an item: a power of two.
        item: NonZeroU32,
        /// The line of the first item.
        first: u32,
        /// Lines from one item to the next.
        stride: u32,
    },
    /// Every item of 64 bytes on the line of the frame that it is [about](Space::framed), counted from `first` on
    /// by `stride`: what a page cache has of a page in the `struct page` of the page's frame.
    ByFrame {
        /// The line of the first frame.
        first: u32,
        /// Lines from one frame to the next.
        stride: u32,
        /// How many frames there are.
        frames: u32,
    },
}

/// On which socket's memory a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In equal parts on all sockets, in the order of addresses.
    Divided,
    /// On that of the CPU that asks: per-CPU memory.
    Local,
    /// On one socket.
    Socket(u8),
}

/// What a range is: names its lines in a profile, its locks in the count of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(pub(crate) &'static str);

/// A range of host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    start: usize,
    bytes: usize,
    /// Bytes of one of its items.
    each: usize,
    /// The first line.
    first: usize,
    /// Lines from one item to the next, and the logarithm of an item's bytes.
    stride: usize,
    item_log2: u32,
    class: u8,
    home: Home,
    spread: bool,
    by_frame: bool,
}

impl Range {
    /// The bytes from `start` on, of items of `each` bytes. A packed one's first line is `first`.
    pub(crate) fn new(
        (start, bytes, each): (usize, usize, usize),
        class: u8,
        layout: Layout,
        home: Home,
        first: usize,
    ) -> Self {
        let (first, stride, item, spread) = match layout {
            Layout::Packed => (first, 1, LINE as u32, false),
            Layout::Spread { item, first, stride } => {
                (first as usize, stride as usize, item.get(), true)
            }
            Layout::ByFrame { first, stride, .. } => {
                (first as usize, stride as usize, LINE as u32, false)
            }
        };
        let by_frame = matches!(layout, Layout::ByFrame { .. });
        debug_assert!(item.is_power_of_two(), "items of {item} bytes");
        let item_log2 = item.trailing_zeros();
        Self { start, bytes, each, first, stride, item_log2, class, home, spread, by_frame }
    }

    fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }

    /// The line of what lies `offset` bytes from the start.
    fn line(&self, offset: usize) -> usize {
        self.first + (offset >> self.item_log2) * self.stride
    }
}

/// A line and its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) class: u8,
}

/// All ranges. Few: they are searched in the order they were added.
#[derive(Debug, Default)]
pub(crate) struct Space {
    ranges: Vec<Range>,
    /// Words spread over `struct page`s: the links of lists of frames.
    links: Option<Range>,
    /// The frame that each item is about of the range that is laid out by frame, and how many frames there are.
    frames_of: Vec<u32>,
    frames: usize,
    pub(crate) classes: Vec<Class>,
    sockets: usize,
}

impl Space {
    pub(crate) fn new(sockets: usize) -> Self {
        Self { sockets, ..Self::default() }
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
        if range.spread && 1 << range.item_log2 == size_of::<u64>() {
            self.links = Some(range);
        }
        self.ranges.push(range);
    }

    /// Items of a range that is laid out by frame are about these frames, until [said](Self::framed) otherwise.
    pub(crate) fn expect_frames(&mut self, items: usize, frames: u32) {
        self.frames = frames as usize;
        self.frames_of = (0..items as u32).map(|item| item % frames.max(1)).collect();
    }

    /// An item is about a frame from now on.
    pub(crate) fn framed(&mut self, item: usize, frame: u32) {
        if let Some(of) = self.frames_of.get_mut(item) {
            *of = frame;
        }
    }

    /// The frame that an item is about.
    pub(crate) fn frame_of(&self, item: usize) -> Option<u32> {
        self.frames_of.get(item).copied()
    }

    fn line(&self, range: &Range, offset: usize) -> usize {
        if range.by_frame {
            let frame = self.frame_of(offset >> range.item_log2).unwrap_or(0);
            return range.first + frame as usize * range.stride;
        }
        range.line(offset)
    }

    #[inline]
    fn range(&self, address: usize) -> Option<&Range> {
        self.ranges.iter().find(|range| range.contains(address))
    }

    /// Where an address is; `None` if it was never registered.
    #[inline]
    pub(crate) fn place(&self, address: usize) -> Option<Place> {
        let range = self.range(address)?;
        Some(Place { line: self.line(range, address - range.start), class: range.class })
    }

    /// The class of what is at an address, and which of the class's items it is: ranges of one class
    /// are counted on, in the order they were added.
    pub(crate) fn item(&self, address: usize) -> Option<(u8, u32)> {
        let at = self.ranges.iter().position(|range| range.contains(address))?;
        let range = &self.ranges[at];
        let before = self.ranges[..at].iter().filter(|other| other.class == range.class);
        let before: usize = before.map(|other| other.bytes / other.each).sum();
        Some((range.class, (before + (address - range.start) / range.each) as u32))
    }

    /// What is spread over `struct page`s will be accessed soon at that of a frame.
    pub(crate) fn prefetch(&self, index: usize) {
        for range in self.ranges.iter().filter(|range| range.spread) {
            memory::prefetch(range.start.wrapping_add(index << range.item_log2));
        }
    }

    /// The frames that a word leads to, each half of it to one, with their lines: a CPU that reads
    /// a link goes there next. None if the word is not a link.
    #[inline]
    pub(crate) fn prefetch_linked(&self, address: usize, word: u64) -> Option<(usize, usize)> {
        let links = self.links.as_ref().filter(|links| links.contains(address))?;
        let prefetch = |index: u32| {
            let offset = (index as usize) << links.item_log2;
            memory::prefetch(links.start.wrapping_add(offset));
            links.line(offset)
        };
        Some((prefetch(word as u32), prefetch((word >> 32) as u32)))
    }

    /// The socket whose memory an address is on; `None`: that of the asker.
    pub(crate) fn home(&self, address: usize) -> Option<u8> {
        let range = self.range(address)?;
        if range.by_frame {
            let frame = self.frame_of((address - range.start) >> range.item_log2)?;
            return Some((frame as usize * self.sockets / self.frames.max(1)) as u8);
        }
        match range.home {
            Home::Local => None,
            Home::Socket(socket) => Some(socket),
            Home::Divided => Some(((address - range.start) * self.sockets / range.bytes) as u8),
        }
    }
}
