//! The file as it is, and what each of its store's two halves may have of it: the volatile one, which is what the store was
//! given, and the durable one, which is what is left when the power goes.
//!
//! A moment is the number of changes so far. Of each piece of the file a half has the bytes of one moment, and a mark says
//! which is the first that may be: it is moved on by what a call promises when it returns, and by nothing else. Pieces are
//! pages, or parts of such between two lengths that the file had: a store that is cut, or is written to up to the end of the
//! file, has a page in two parts, which may be of different moments.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) const PAGE: usize = 4096;
/// Pages that the file has at most.
pub(super) const PAGES: usize = 36;
const MOST: usize = PAGES * PAGE;

/// One half: since which moment it may be as the file was.
struct Half {
    name: &'static str,
    /// By where pieces begin that have one mark.
    since: BTreeMap<usize, usize>,
    len: usize,
}

impl Half {
    fn new(name: &'static str) -> Self {
        Self { name, since: [(0, 0)].into(), len: 0 }
    }

    /// The mark of a byte.
    fn at(&self, at: usize) -> usize {
        self.since.range(..=at).next_back().map_or(0, |(_, &since)| since)
    }

    /// A range is as it was at this moment, or later.
    fn raise(&mut self, Range { start, end }: Range<usize>, moment: usize) {
        if start < end {
            let behind = self.at(end);
            self.since.retain(|at, _| !(start..=end).contains(at));
            self.since.extend([(start, moment), (end, behind)]);
        }
    }
}

pub(super) struct Model {
    /// The file, and zeroes beyond its length.
    bytes: Vec<u8>,
    len: usize,
    moment: usize,
    /// What each page was from which moment on, and how long the file was.
    pages: Vec<Vec<(usize, Vec<u8>)>>,
    lens: Vec<(usize, usize)>,
    /// Lengths that the file had since all of it was kept.
    edges: BTreeSet<usize>,
    volatile: Half,
    durable: Half,
}

/// What something was at a moment, and all that it was later.
fn since<T>(history: &[(usize, T)], moment: usize) -> impl Iterator<Item = &T> {
    let first = history.partition_point(|(at, _)| *at <= moment).saturating_sub(1);
    history[first..].iter().map(|(_, was)| was)
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; MOST],
            len: 0,
            moment: 0,
            pages: vec![vec![(0, vec![0; PAGE])]; PAGES],
            lens: vec![(0, 0)],
            edges: BTreeSet::new(),
            volatile: Half::new("was given"),
            durable: Half::new("keeps"),
        }
    }

    /// A range is other bytes from now on, by `change`, and the file this long.
    fn change(&mut self, range: Range<usize>, len: usize, change: impl FnOnce(&mut [u8])) {
        self.moment += 1;
        change(&mut self.bytes[range.clone()]);
        for index in range.start / PAGE..range.end.div_ceil(PAGE) {
            let is = &self.bytes[index * PAGE..][..PAGE];
            self.pages[index].push((self.moment, is.to_vec()));
        }
        if len != self.len {
            self.len = len;
            self.edges.insert(len);
            self.lens.push((self.moment, len));
        }
    }

    pub(super) fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        self.change(at..end, self.len.max(end), |bytes| bytes.copy_from_slice(data));
    }

    /// A call that has returned cut the file: the store is cut too.
    pub(super) fn cut(&mut self, len: usize) {
        self.change(len..self.len.max(len), len, |bytes| bytes.fill(0));
        self.volatile.raise(len..MOST, self.moment);
        self.volatile.len = self.moment;
    }

    /// A range may be zero from now on, in the store as well.
    pub(super) fn may_be_zero(&mut self, range: Range<usize>) {
        if range.start < self.len {
            let within = range.start..range.end.min(self.len);
            self.change(within, self.len, |bytes| bytes.fill(0));
        }
    }

    /// A call that has returned made a range zero: of the store its whole pages are.
    pub(super) fn zero(&mut self, range: Range<usize>) {
        let end = range.end.min(self.len);
        self.may_be_zero(range.clone());
        self.volatile.raise(range.start.next_multiple_of(PAGE)..end / PAGE * PAGE, self.moment);
    }

    /// The store was given all.
    pub(super) fn given(&mut self) {
        self.volatile.raise(0..MOST, self.moment);
        self.volatile.len = self.moment;
    }

    /// The store was given the pages that a range touches, and told to keep what it has.
    pub(super) fn kept(&mut self, range: Range<usize>) {
        let range = range.start / PAGE * PAGE..range.end.next_multiple_of(PAGE).min(MOST);
        self.volatile.raise(range, self.moment);
        self.durable.since.clone_from(&self.volatile.since);
        self.durable.len = self.volatile.len;
    }

    /// The store was given all, and told to keep it.
    pub(super) fn all_kept(&mut self) {
        self.given();
        self.kept(0..MOST);
        self.edges = [self.len].into();
    }

    /// Whether the store may have these bytes: `durable` if all may be lost that it was not told to keep.
    pub(super) fn check(&self, durable: bool, bytes: &[u8]) -> Result<(), String> {
        let half = if durable { &self.durable } else { &self.volatile };
        let lens = || since(&self.lens, half.len).copied();
        let (least, most) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
        let (name, len) = (half.name, bytes.len());
        if !(least..=most).contains(&len) {
            return Err(format!("it {name} {len} bytes, of {least} to {most}"));
        }
        let mut is = vec![0; MOST];
        is[..len].copy_from_slice(bytes);
        let pages = (0..=PAGES).map(|index| index * PAGE);
        let starts = pages.chain(self.edges.iter().copied()).chain(half.since.keys().copied());
        let starts: Vec<usize> = starts.collect::<BTreeSet<usize>>().into_iter().collect();
        for piece in starts.windows(2).map(|pair| pair[0]..pair[1]) {
            let (index, mark) = (piece.start / PAGE, half.at(piece.start));
            let within = piece.start - index * PAGE..piece.end - index * PAGE;
            let mut were = since(&self.pages[index], mark).map(|was| &was[within.clone()]);
            if !were.any(|was| *was == is[piece.clone()]) {
                return Err(format!("it {name} bytes {piece:?} as they never were since {mark}"));
            }
        }
        Ok(())
    }
}
