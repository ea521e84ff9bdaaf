//! The allocator of a framework that hands memory over piece by piece, asks by layout, and frees any part: the shape of
//! OSTD's `GlobalFrameAllocator`, of which a copy of the signature is below. In a kernel on OSTD the trait is that
//! crate's, and the static has its attribute.
//!
//! Pieces that come before the first request are collected, and the first request builds the allocator over them all.
//! What comes later is released to it, where it lies between them.
//!
//! ```text
//! cargo test -p zonal-kernel --example global_frame_allocator
//! cargo build -p zonal-kernel --example global_frame_allocator --target x86_64-unknown-none
//! ```
#![cfg_attr(target_os = "none", no_std, no_main)]

use core::alloc::Layout;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zonal::map::{PhysAddr, Region};
use zonal::platform::Lock;
use zonal::units::FRAME_SIZE;
use zonal::{Bounds, Pfn, Request, plan::Config};
use zonal_kernel::irq_lock::IrqLock;
use zonal_kernel::{Error, Global, Machine};

/// A physical address.
pub type Paddr = usize;

/// The signature of OSTD's trait.
pub trait GlobalFrameAllocator: Sync {
    /// Frames in a row, of whole frames.
    fn alloc(&self, layout: Layout) -> Option<Paddr>;
    /// Any part of what was allocated.
    fn dealloc(&self, addr: Paddr, size: usize);
    /// Memory that no code uses.
    fn add_free_memory(&self, addr: Paddr, size: usize);
}

/// Pieces that may come before the first request.
const PIECES: usize = 64;

/// What came before the first request, in bytes.
struct Pieces {
    list: [Range<u64>; PIECES],
    len: usize,
}

/// The allocator.
pub struct Frames<M: Machine> {
    global: Global<M>,
    cpus: u32,
    /// The pieces; nothing once the allocator is built.
    pieces: IrqLock<Option<Pieces>, M>,
    /// Frames that came and could not be kept, and frees that were refused.
    lost: AtomicU64,
}

impl<M: Machine> Frames<M> {
    /// Without memory.
    ///
    /// # Safety
    /// What is added is memory, no code uses it but through this allocator, and [`Machine::address`] says where it can
    /// be read and written. What is freed is the caller's, if it is allocated, and in use no more: the framework sees to
    /// that. Tokens of other allocators cannot come here: the `Global` is private.
    #[must_use]
    pub const unsafe fn new(cpus: u32) -> Self {
        let pieces = Pieces { list: [const { 0..0 }; PIECES], len: 0 };
        let pieces = IrqLock::new(Some(pieces));
        Self { global: Global::new(), cpus, pieces, lost: AtomicU64::new(0) }
    }

    /// Frames that came and could not be kept, and frees that were refused.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Builds the allocator, if another CPU has not.
    #[cold]
    fn boot(&'static self) -> Result<(), Error> {
        self.pieces.with(|pieces| {
            let Some(own) = pieces else { return Ok(()) };
            let regions = own.list[..own.len]
                .iter()
                .map(|piece| Region::usable(PhysAddr(piece.start), piece.end - piece.start));
            let map = self.global.map(regions, &[], [])?;
            // SAFETY: the promise made to `new`.
            unsafe { map.boot(Config::new(self.cpus))? };
            *pieces = None;
            Ok(())
        })
    }

    fn lose(&self, frames: u64) {
        self.lost.fetch_add(frames, Relaxed);
    }
}

/// Of a reference, because the allocator stays where it is: `static ALLOCATOR: &Frames<Pc> = &FRAMES` is what a kernel
/// marks as its own.
impl<M: Machine> GlobalFrameAllocator for &'static Frames<M> {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let frames = layout.size().div_ceil(FRAME_SIZE) as u64;
        let align = layout.align().div_ceil(FRAME_SIZE) as u64;
        let bounds = Bounds::ANY.aligned(align);
        let found = match self.global.alloc_pages(frames, &Request::frame(), &bounds) {
            Err(Error::NotBooted) => {
                self.boot().ok()?;
                self.global.alloc_pages(frames, &Request::frame(), &bounds)
            }
            found => found,
        };
        Some(found.ok()?.address() as Paddr)
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        let (first, frames) = (Pfn::containing(addr as u64), (size / FRAME_SIZE) as u64);
        // SAFETY: the promise made to `new`.
        if unsafe { self.global.free_pages(first, frames) }.is_err() {
            self.lose(frames);
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        let (addr, size) = (addr as u64, size as u64);
        let kept = self.pieces.with(|pieces| {
            let pieces = pieces.as_mut()?;
            let place = pieces.list.get_mut(pieces.len);
            let has_place = place.map(|place| *place = addr..addr + size).is_some();
            pieces.len += usize::from(has_place);
            Some(has_place)
        });
        let range = Pfn::containing(addr)..Pfn::containing(addr + size);
        // SAFETY: the promise made to `new`.
        let kept = kept.unwrap_or_else(|| unsafe { self.global.release(range) }.is_ok());
        if !kept {
            self.lose(size / FRAME_SIZE as u64);
        }
    }
}

#[cfg(not(test))]
mod kernel {
    use super::{Frames, Machine};
    use zonal::{CpuId, NodeId, map::PhysAddr};
    use zonal_kernel::arch;

    pub(crate) struct Pc;

    #[rustfmt::skip]
    impl Machine for Pc {
        fn cpu() -> CpuId { CpuId(0) }
        fn node(_: CpuId) -> NodeId { NodeId(0) }
        // A program has none, and may not mask them.
        fn interrupts_off() -> bool { cfg!(target_os = "none") && arch::interrupts_off() }
        fn interrupts_restore(were_on: bool) {
            if cfg!(target_os = "none") { arch::interrupts_restore(were_on) }
        }
        fn address(frame: PhysAddr) -> *mut u8 { (0xffff_8000_0000_0000 + frame.0) as *mut u8 }
    }

    // SAFETY: no memory is added here; a framework adds what no other code uses, and frees what it was given.
    pub(crate) static FRAMES: Frames<Pc> = unsafe { Frames::new(1) };
}

#[cfg(not(any(test, target_os = "none")))]
fn main() {
    let frame = Layout::new::<[u8; FRAME_SIZE]>();
    println!(
        "without memory: {:?}, {} lost",
        (&kernel::FRAMES).alloc(frame),
        kernel::FRAMES.lost()
    );
}

#[cfg(target_os = "none")]
mod bare {
    use super::{GlobalFrameAllocator, Layout, kernel::FRAMES};

    /// Where a boot loader jumps to. This one has no memory to add.
    #[unsafe(no_mangle)]
    extern "C" fn _start() -> ! {
        let allocator: &dyn GlobalFrameAllocator = &&FRAMES;
        assert!(allocator.alloc(Layout::new::<[u8; 4096]>()).is_none(), "a machine without memory");
        loop {}
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }
}

#[cfg(test)]
#[path = "../tests/fake/mod.rs"]
mod fake;

#[cfg(test)]
mod tests {
    use super::{Frames, GlobalFrameAllocator, Layout, fake};
    use std::collections::BTreeSet;

    const FRAME: usize = 4096;
    const MIB: usize = 1 << 20;

    // SAFETY: the fake machine's memory is used by no other code, and the test frees what it was given, or what is
    // free.
    static FRAMES: Frames<fake::Fake> = unsafe { Frames::new(2) };

    fn layout(frames: usize, align: usize) -> Layout {
        Layout::from_size_align(frames * FRAME, align).unwrap()
    }

    #[test]
    fn any_part_comes_back_and_all_frames_are_counted() {
        fake::memory(16 * MIB);
        let allocator: &dyn GlobalFrameAllocator = &&FRAMES;
        assert_eq!(allocator.alloc(layout(1, FRAME)), None, "no memory yet");

        // Neighbours, in the wrong order, and what the kernel has for itself between.
        for (start, end) in [(8, 12), (4, 8), (13, 16)] {
            allocator.add_free_memory(start * MIB, (end - start) * MIB);
        }
        let mut held = BTreeSet::new();
        for (frames, align) in [(1, 1), (3, FRAME), (16, 16 * FRAME), (700, MIB), (1, 64 * FRAME)] {
            let start = allocator.alloc(layout(frames, align)).unwrap();
            assert!(start.is_multiple_of(align) && start.is_multiple_of(FRAME), "{start:#x}");
            held.extend((0..frames).map(|n| start + n * FRAME));
        }
        assert_eq!(held.len(), 721, "none twice");
        assert!(held.iter().all(|frame| (4 * MIB..16 * MIB).contains(frame)));
        assert!(!held.iter().any(|frame| (12 * MIB..13 * MIB).contains(frame)));

        // All frames one by one, what was free, what was held, what comes later.
        while let Some(frame) = allocator.alloc(layout(1, FRAME)) {
            assert!(held.insert(frame), "{frame:#x} twice");
        }
        let before = held.len();
        assert!((2700..11 * 256).contains(&before), "{before} of 11 MiB, less the tables");
        allocator.add_free_memory(12 * MIB, MIB);
        while let Some(frame) = allocator.alloc(layout(1, FRAME)) {
            assert!(held.insert(frame), "{frame:#x} twice");
        }
        assert_eq!((held.len(), FRAMES.lost()), (before + 256, 0));

        // Neighbours go back together, whatever they were allocated with.
        let all: Vec<usize> = held.into_iter().collect();
        for run in all.chunk_by(|a, b| a + FRAME == *b) {
            let (first, rest) = run.split_at(run.len() / 3);
            for part in [rest, first].into_iter().filter(|part| !part.is_empty()) {
                allocator.dealloc(part[0], part.len() * FRAME);
            }
        }
        assert_eq!(FRAMES.lost(), 0);
        let again = std::iter::from_fn(|| allocator.alloc(layout(1, FRAME))).count();
        assert_eq!(again, all.len());

        // What cannot be kept is counted: memory above all that the tables know, a free of what is not allocated.
        allocator.add_free_memory(64 * MIB, 2 * FRAME);
        allocator.dealloc(MIB, FRAME);
        assert_eq!(FRAMES.lost(), 3);
    }
}
