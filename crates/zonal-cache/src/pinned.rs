//! Bytes of a file in memory, without a copy.

use crate::file::File;
use crate::frames::{Frames, PAGE, bytes_of_row, span};
use crate::inner::Setup;
use crate::page::Page;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::iter;
use core::mem::ManuallyDrop;
use core::ops::Range;

/// Bytes of a file that stay in memory, and as they are, until this is dropped: see
/// [`File::pin`](crate::File::pin). They are in pieces of a page or more.
///
/// ```
/// use zonal_cache::{Cache, MemoryStore, S3Fifo};
/// let cache = Cache::<S3Fifo>::builder().memory(1 << 20).open()?;
/// let file = cache.open(MemoryStore::from(vec![1; 10_000]))?;
/// let pinned = file.pin(4000..9000)?;
/// assert_eq!(pinned.len(), 5000);
/// assert_eq!(pinned.pieces().map(<[u8]>::len).sum::<usize>(), 5000);
/// file.write_at(&[2; 10], 4000)?;
/// assert!(pinned.pieces().flatten().all(|&byte| byte == 1), "as it was when it was pinned");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pinned<'a, S: Setup> {
    first: Option<Page<'a, S>>,
    /// A range within one page has none, and takes no heap.
    rest: ManuallyDrop<Option<Box<Rest<'a, S>>>>,
    /// Where it begins in the first page.
    from: usize,
    /// Where it ends in the last one.
    upto: usize,
}

/// What a range has beside its first page.
pub(crate) struct Rest<'a, S: Setup> {
    /// Those after it.
    pub(crate) pages: Vec<Page<'a, S>>,
    /// Those of the range that are to go with it.
    pub(crate) over: Option<Over<'a, S>>,
}

/// Pages that are to go when this is dropped: see [`Advice::UseOnce`](crate::Advice::UseOnce).
pub(crate) struct Over<'a, S: Setup> {
    pub(crate) file: &'a File<S>,
    pub(crate) pages: Range<u64>,
}

impl<S: Setup> Drop for Over<'_, S> {
    fn drop(&mut self) {
        self.file.let_go(&self.pages);
    }
}

/// The first page, what there is beside it, and where the range begins and ends in the first page and the last.
pub(crate) type Several<'a, S> = (Page<'a, S>, Option<Box<Rest<'a, S>>>, Range<usize>);

impl<'a, S: Setup> Pinned<'a, S> {
    #[inline(always)]
    pub(crate) const fn none() -> Self {
        Self { first: None, rest: ManuallyDrop::new(None), from: 0, upto: 0 }
    }

    /// A range within a page.
    #[inline(always)]
    pub(crate) const fn one(page: Page<'a, S>, Range { start, end }: Range<usize>) -> Self {
        Self { first: Some(page), rest: ManuallyDrop::new(None), from: start, upto: end }
    }

    /// From a place in the first page to one in the last.
    #[inline(always)]
    pub(crate) const fn several(
        first: Page<'a, S>,
        rest: Option<Box<Rest<'a, S>>>,
        Range { start, end }: Range<usize>,
    ) -> Self {
        Self { first: Some(first), rest: ManuallyDrop::new(rest), from: start, upto: end }
    }

    #[inline(always)]
    fn rest(&self) -> &[Page<'a, S>] {
        self.rest.as_ref().map_or(&[], |rest| &rest.pages)
    }

    #[cold]
    #[inline(never)]
    fn drop_rest(&mut self) {
        // SAFETY: called once, as `self` is dropped, and not used after.
        let rest = unsafe { ManuallyDrop::take(&mut self.rest) };
        // All looks end before pages are to go, so that these go at once, in a list.
        self.first = None;
        if let Some(rest) = rest {
            let Rest { pages, over } = *rest;
            drop(pages);
            drop(over);
        }
    }

    /// The bytes, in pieces: pages that follow each other in memory as they do in the file are one, where the frames are
    /// [joined](Frames::JOINED). O(pages).
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        iter::from_fn(move || {
            let (piece, end) = self.piece(at)?;
            at = end;
            Some(piece)
        })
    }

    /// All bytes, if they are in one page, or in pages that are one piece. O(pages).
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match (&self.first, self.rest()) {
            (None, _) => Some(&[]),
            (Some(page), []) => Some(&page[span::<S::Frames>(self.from..self.upto)]),
            _ => self.if_one(),
        }
    }

    #[inline(never)]
    fn if_one(&self) -> Option<&[u8]> {
        let (piece, end) = self.piece(0)?;
        (end == self.rest().len() + 1).then_some(piece)
    }

    /// As many pages from number `at` on as are one piece, and the number of the page after them.
    fn piece(&self, at: usize) -> Option<(&[u8], usize)> {
        let mut pages = self.first.iter().chain(self.rest()).skip(at);
        let first = pages.next()?;
        let in_a_row = pages.zip(first.frame().get() + 1..);
        let more = in_a_row
            .take_while(|(page, frame)| S::Frames::JOINED && page.frame().get() == *frame)
            .count();
        let end = at + 1 + more;
        // SAFETY: these frames are those of as many pages, at which `self` looks for as long as the reference lives: they stay
        // allocated, and no thread writes to them. They are more than one only if frames are joined.
        let bytes = unsafe { bytes_of_row(first.frames(), first.frame(), end - at) };
        let from = if at == 0 { self.from } else { 0 };
        let rest = self.rest().len() + 1 - end;
        let upto = (end - at) * PAGE - if rest == 0 { PAGE - self.upto } else { 0 };
        Some((&bytes[span::<S::Frames>(from..upto)], end))
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rest().len() * PAGE + self.upto - self.from
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<S: Setup> Drop for Pinned<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // Most have one page, which is dropped in place, and nothing else.
        if self.rest.is_some() {
            self.drop_rest();
        }
    }
}

impl<S: Setup> fmt::Debug for Pinned<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("len", &self.len()).finish_non_exhaustive()
    }
}
