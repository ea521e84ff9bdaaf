//! An address space: four levels of page tables whose pages are the allocator's, and pages that come by
//! faults.

use super::{alloc, free_list, free_raw, movable, shares, words};
use crate::machine::{FRAMES, Pc, cpu, tables, team};
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use x86_64::VirtAddr;
use x86_64::registers::control::{Cr3, Cr3Flags};
use x86_64::structures::paging::mapper::{
    CleanUp, MapToError, MapperFlush, TranslateResult, UnmapError,
};
use x86_64::structures::paging::{
    Mapper, OffsetPageTable, Page, PageSize, PageTable, PageTableFlags as Flags, PhysFrame,
    Size2MiB, Size4KiB, Translate,
};
use zonal::platform::Lock;
use zonal::{Block, Immovable, MigrateType, Order, Pfn, Request};
use zonal_kernel::Error;
use zonal_kernel::irq_lock::IrqLock;
use zonal_kernel::page_tables::PageFrames;

/// Where it begins and ends: behind the 512 GiB that are mapped as they are.
pub(crate) const START: u64 = 1 << 39;
pub(crate) const END: u64 = 1 << 47;
const PAGE: u64 = 4096;
/// How many pages are unmapped before the other processors flush.
const BATCH: usize = 128;

/// See the module.
pub(crate) struct AddressSpace {
    root: Pfn,
    /// Held by who changes its tables.
    lock: IrqLock<(), Pc>,
    /// Whether faults try pages of 2 MiB first.
    huge: bool,
    /// Whether several processors use it.
    shared: bool,
    /// The processor that has its pages moved when memory is compacted, plus 1; 0: they stay.
    movable: AtomicU32,
}

/// How to use one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) huge: bool,
    pub(crate) shared: bool,
}

/// What is mapped at a page of 4 KiB.
const FLAGS: Flags = CODE.union(Flags::WRITABLE).union(Flags::NO_EXECUTE);
/// At one that several spaces have.
const SHARED: Flags = CODE.union(Flags::NO_EXECUTE);
/// At a page of a program.
const CODE: Flags = Flags::PRESENT.union(Flags::USER_ACCESSIBLE);

impl AddressSpace {
    /// An empty one, with the kernel's own memory in it.
    pub(crate) fn new(kind: Kind) -> Result<Self, Error> {
        let (root, _) = FRAMES.alloc(&Request::frame().zero())?.into_raw();
        let kernel = words(Pfn::containing(kernel_root().start_address().as_u64()));
        for entry in [0, tables::ENTRY] {
            let (from, to) = (kernel.wrapping_add(entry), words(root).wrapping_add(entry));
            // SAFETY: one entry of the tables that are in use, mapped as all memory is; and one of the frame that was
            // allocated a moment ago.
            unsafe { to.copy_from_nonoverlapping(from, 1) };
        }
        let Kind { huge, shared } = kind;
        Ok(Self { root, lock: IrqLock::new(()), huge, shared, movable: AtomicU32::new(0) })
    }

    pub(crate) fn is_huge(&self) -> bool {
        self.huge
    }

    /// Runs `f` with this processor in it. It must not be in one already.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        let own = cpu::own();
        let (before, flags) = Cr3::read();
        // Under the lock: who moves a page of it comes before, or sees that a processor is in it.
        self.lock.with(|()| own.space.store(ptr::from_ref(self).cast_mut(), Release));
        // SAFETY: its first entry and that of the allocator's tables are the kernel's, so what runs stays mapped.
        unsafe { Cr3::write(frame(self.root), flags) };
        let result = f();
        // SAFETY: as it was.
        unsafe { Cr3::write(before, flags) };
        // Release: pairs with the acquire in `move_page`: what was written there is seen.
        own.space.store(ptr::null_mut(), Release);
        result
    }

    /// Runs `f`, during which pages that come by faults are moved where compaction wants that. For spaces that are not
    /// shared; one at a time on a processor.
    pub(crate) fn with_movable_pages<R>(&self, f: impl FnOnce() -> R) -> R {
        self.movable.store(cpu::number().0 + 1, Relaxed);
        let result = movable::with_space(self, f);
        self.movable.store(0, Relaxed);
        result
    }

    /// Moves what is at `address`, if that is the frame `from`, to `to`; unless another processor is in the space, which
    /// might be writing it.
    ///
    /// # Errors
    /// [`Immovable`]; nothing has changed.
    pub(crate) fn move_page(&self, address: VirtAddr, from: Pfn, to: Pfn) -> Result<(), Immovable> {
        let own = cpu::number().0;
        let here = ptr::from_ref(self).cast_mut();
        self.with_tables(|tables| {
            let mut others = (0..cpu::count()).filter(|&number| number != own);
            // Acquire: pairs with the release of who left it.
            if others.any(|number| cpu::at(number).space.load(Acquire) == here) {
                return Err(Immovable);
            }
            let TranslateResult::Mapped { flags, .. } = tables.translate(address) else {
                return Err(Immovable);
            };
            let page = Page::<Size4KiB>::containing_address(address);
            if !tables.translate_page(page).is_ok_and(|there| there == frame(from)) {
                return Err(Immovable);
            }
            let (_, flush) = tables.unmap(page).map_err(|_| Immovable)?;
            flush.flush();
            // SAFETY: the old frame is mapped nowhere any more but where all memory is, and the new one was allocated
            // for this.
            unsafe { words(to).copy_from_nonoverlapping(words(from), PAGE as usize / 8) };
            // SAFETY: as `map_as`; its tables are there, so none is asked for.
            let mapped =
                unsafe { tables.map_to(page, frame(to), flags, &mut PageFrames::new(&FRAMES)) };
            let Ok(flush) = mapped else { panic!("a page was unmapped, and cannot be mapped") };
            flush.flush();
            movable::forget(from);
            movable::note(to, self.movable.load(Relaxed).saturating_sub(1), address);
            Ok(())
        })
    }

    /// Runs `f` on the tables, alone.
    pub(crate) fn with_tables<R>(&self, f: impl FnOnce(&mut OffsetPageTable<'_>) -> R) -> R {
        self.lock.with(|()| {
            // SAFETY: the root is this space's, and the lock is held: no other code has a reference.
            let root = unsafe { &mut *words(self.root).cast::<PageTable>() };
            // SAFETY: all memory is mapped as it is, and the root is a table of that level.
            f(&mut unsafe { OffsetPageTable::new(root, VirtAddr::zero()) })
        })
    }

    /// Maps a block that was allocated for a page at `address`.
    ///
    /// # Errors
    /// [`Unmapped`]; the block was freed.
    pub(crate) fn map(&self, address: VirtAddr, block: Block) -> Result<(), Unmapped> {
        self.map_as(address, block, FLAGS)
    }

    /// The same, for a page of a program.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub(crate) fn map_code(&self, address: VirtAddr, block: Block) -> Result<(), Unmapped> {
        self.map_as(address, block, CODE)
    }

    fn map_as(&self, address: VirtAddr, block: Block, flags: Flags) -> Result<(), Unmapped> {
        let (pfn, order) = block.into_raw();
        let mut tables = PageFrames::new(&FRAMES);
        let mapped = self.with_tables(|space| {
            if order == Order::ZERO {
                let page = Page::<Size4KiB>::containing_address(address);
                // SAFETY: the frame is ours, and mapped nowhere but where all memory is.
                let mapped = unsafe { space.map_to(page, frame(pfn), flags, &mut tables) };
                let number = self.movable.load(Relaxed);
                if mapped.is_ok() && number != 0 {
                    movable::note(pfn, number - 1, address.align_down(PAGE));
                }
                mapped.map(MapperFlush::flush).map_err(|error| kind_of(&error))
            } else {
                let page = Page::<Size2MiB>::containing_address(address);
                let huge = PhysFrame::containing_address(frame(pfn).start_address());
                // SAFETY: as above.
                let mapped = unsafe { space.map_to(page, huge, flags, &mut tables) };
                mapped.map(MapperFlush::flush).map_err(|error| kind_of(&error))
            }
        });
        if mapped.is_err() {
            // SAFETY: it was allocated with this order, and not mapped.
            unsafe { free_raw(pfn, order) };
        }
        mapped
    }

    /// Unmaps `pages` pages of 4 KiB from `start` on, those that there are, and frees what was there.
    /// With interrupts let in.
    pub(crate) fn unmap(&self, start: VirtAddr, pages: u64) {
        let end = start + pages * PAGE;
        let mut at = start;
        while at < end {
            let (mut small, mut large) = (Gone::default(), Gone::default());
            self.with_tables(|space| {
                while at < end && small.count < BATCH && large.count < BATCH {
                    let (found, size) = unmap_one(space, at);
                    match found {
                        Some((pfn, Order::ZERO)) if !shares::give_up(pfn) => {}
                        Some((pfn, Order::ZERO)) => {
                            movable::forget(pfn);
                            small.push(pfn);
                        }
                        Some((pfn, _)) => large.push(pfn),
                        None => {}
                    }
                    at += size;
                }
            });
            if self.shared {
                team::flush_others();
            }
            // SAFETY: they were mapped here alone, and are not any more, on no processor.
            unsafe { free_list(small.pfns()) };
            for &pfn in large.pfns() {
                // SAFETY: as above.
                unsafe { free_raw(pfn, Order::HUGE) };
            }
        }
    }

    /// A space with the same pages, `pages` of 4 KiB from `start` on: both have them read-only until one
    /// writes. Only for spaces that are not shared by processors.
    ///
    /// # Errors
    /// [`Unmapped`]; then the part that was made is lost, which the count will find.
    pub(crate) fn fork(&self, start: VirtAddr, pages: u64) -> Result<Self, Unmapped> {
        let kind = Kind { huge: false, shared: false };
        let child = Self::new(kind).map_err(|_| Unmapped::NoMemory)?;
        let mut tables = PageFrames::new(&FRAMES);
        for page in (0..pages).map(|n| start + n * PAGE) {
            let page = Page::<Size4KiB>::containing_address(page);
            self.with_tables(|own| {
                let Ok(found) = own.translate_page(page) else { return Ok(()) };
                if !shares::share(Pfn::containing(found.start_address().as_u64())) {
                    return Err(Unmapped::Taken);
                }
                // SAFETY: fewer rights for a page of this space.
                if let Ok(flush) = unsafe { own.update_flags(page, SHARED) } {
                    flush.flush();
                }
                child.with_tables(|theirs| {
                    // SAFETY: read-only in both, and counted, so that it is freed by the last.
                    let mapped = unsafe { theirs.map_to(page, found, SHARED, &mut tables) };
                    mapped.map(MapperFlush::ignore).map_err(|error| kind_of(&error))
                })
            })?;
        }
        Ok(child)
    }

    /// Makes the page at `address`, which is there, one that can be written: a copy, if other spaces have it.
    ///
    /// # Errors
    /// [`Unmapped::NoMemory`] for the copy; [`Unmapped::Taken`] if there is no such page of 4 KiB.
    pub(crate) fn write(&self, address: VirtAddr) -> Result<(), Unmapped> {
        let page = Page::<Size4KiB>::containing_address(address);
        let found = self.with_tables(|space| space.translate_page(page));
        let found = found.map_err(|_| Unmapped::Taken)?;
        let old = Pfn::containing(found.start_address().as_u64());
        if !shares::is_shared(old) {
            // SAFETY: the page's own rights: no other space has it.
            let changed = self.with_tables(|space| unsafe { space.update_flags(page, FLAGS) });
            changed.map_err(|_| Unmapped::Taken)?.flush();
            shares::KEPT.fetch_add(1, Relaxed);
            return Ok(());
        }
        let copy = Request::frame().migrate(MigrateType::Movable);
        let copy = alloc(&copy).map_err(|_| Unmapped::NoMemory)?;
        // SAFETY: the old frame is read-only wherever it is mapped, and stays as long as this space has
        // it; the new one was allocated a moment ago.
        unsafe { words(copy.pfn()).copy_from_nonoverlapping(words(old), PAGE as usize / 8) };
        shares::COPIED.fetch_add(1, Relaxed);
        let gone = self.with_tables(|space| unmap_one(space, address));
        let mapped = self.map(address, copy);
        if gone.0.is_some() && shares::give_up(old) {
            // SAFETY: this space was the last that had it.
            unsafe { free_raw(old, Order::ZERO) };
        }
        mapped
    }

    /// Frees its tables. All was unmapped, and no processor is in it.
    pub(crate) fn end(self) {
        let mut tables = PageFrames::new(&FRAMES);
        let page = |address| Page::<Size4KiB>::containing_address(VirtAddr::new(address));
        let all = Page::range_inclusive(page(START), page(END - PAGE));
        // SAFETY: tables without an entry, which no processor uses; made of frames of `PageFrames`.
        self.with_tables(|space| unsafe { space.clean_up_addr_range(all, &mut tables) });
        // SAFETY: allocated by `new`; no processor uses it.
        unsafe { free_raw(self.root, Order::ZERO) };
    }
}

/// Frames that are mapped no more.
struct Gone {
    pfns: [Pfn; BATCH],
    count: usize,
}

impl Default for Gone {
    fn default() -> Self {
        Self { pfns: [Pfn::default(); BATCH], count: 0 }
    }
}

impl Gone {
    fn push(&mut self, pfn: Pfn) {
        self.pfns[self.count] = pfn;
        self.count += 1;
    }

    fn pfns(&self) -> &[Pfn] {
        &self.pfns[..self.count]
    }
}

/// Why a page was not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmapped {
    /// There is one, or smaller ones in its place.
    Taken,
    /// No memory for a table.
    NoMemory,
}

fn kind_of<S: PageSize>(error: &MapToError<S>) -> Unmapped {
    match error {
        MapToError::FrameAllocationFailed => Unmapped::NoMemory,
        MapToError::ParentEntryHugePage | MapToError::PageAlreadyMapped(_) => Unmapped::Taken,
    }
}

/// Takes the page at `at` out; returns what was there, and how far to go on.
fn unmap_one(space: &mut OffsetPageTable<'_>, at: VirtAddr) -> (Option<(Pfn, Order)>, u64) {
    match space.unmap(Page::<Size4KiB>::containing_address(at)) {
        Ok((frame, flush)) => {
            flush.flush();
            let pfn = Pfn::containing(frame.start_address().as_u64());
            (Some((pfn, Order::ZERO)), PAGE)
        }
        Err(UnmapError::ParentEntryHugePage) => {
            match space.unmap(Page::<Size2MiB>::containing_address(at)) {
                Ok((frame, flush)) => {
                    flush.flush();
                    let pfn = Pfn::containing(frame.start_address().as_u64());
                    (Some((pfn, Order::HUGE)), Size2MiB::SIZE)
                }
                Err(_) => (None, Size2MiB::SIZE),
            }
        }
        Err(_) => (None, PAGE),
    }
}

fn frame(pfn: Pfn) -> PhysFrame {
    PhysFrame::containing_address(x86_64::PhysAddr::new(pfn.address()))
}

/// The tables that the boot made.
fn kernel_root() -> PhysFrame {
    let (root, _): (PhysFrame, Cr3Flags) = Cr3::read();
    root
}
