//! The kernel's own page faults: `mmap`, write to each page, `munmap`.
//!
//! It is no [`Subject`](crate::subject::Subject): the frames come from page faults, not from
//! calls. It takes part in `page-fault1 --touch` only, where each repetition is what will-it-scale
//! calls `page_fault1`.
//!
//! ```
//! use zonal_bench::options::Options;
//! use zonal_bench::subject::Setup;
//! use zonal_bench::{case::Spec, subjects::kernel, workload::Workload};
//!
//! let setup = Setup { memory: 1 << 30, threads: 1, touch: true, regions: None };
//! let options = Options::default();
//! let spec = Spec { workload: Workload::PageFault1, setup, seed: 1, options };
//! assert!(kernel::open(&spec).is_ok());
//! ```

use core::ptr;
use std::io;
use std::sync::Arc;

use crate::case::{Case, CaseError, Sample, Shared, Spec, assemble, take_part};
use crate::figures::Figures;
use crate::loops::Halt;
use crate::pool::Pool;
use crate::subject::{FRAME_BYTES, Group, Path, Profile, SubjectError};
use crate::workload::TASK_FRAMES;

/// What is known of it.
pub const PROFILE: Profile = Profile {
    name: "kernel-mmap",
    path: Path::Shared,
    group: Group::Reference,
    note: "no allocator: page faults of the kernel, mmap and munmap included",
    max_order: 0,
    managed: false,
    bulk: false,
};

struct KernelMmap {
    threads: usize,
}

/// A case for `spec`, whose workload is taken to be `page-fault1` with touching.
///
/// # Errors
///
/// None; the signature is the one of [`crate::case::open`].
pub fn open(spec: &Spec) -> Result<Arc<dyn Case>, SubjectError> {
    Ok(Arc::new(KernelMmap { threads: spec.setup.threads }))
}

impl Case for KernelMmap {
    fn sample(self: Arc<Self>, pool: &Pool, reps: u64) -> Result<Sample, CaseError> {
        let shared = Shared::<u32>::new(self.threads, reps, 0);
        let parts = pool.run(self.threads, move |thread| {
            take_part(&shared.place, thread, || {
                Ok((shared.measure(TASK_FRAMES, true, map_touch_unmap)?, Figures::default()))
            })
        })?;
        assemble(parts)
    }
}

fn map_touch_unmap() -> Result<(), Halt> {
    let bytes = TASK_FRAMES * FRAME_BYTES;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: an anonymous mapping at an address of the kernel's choice replaces nothing.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        let source = io::Error::last_os_error();
        return Err(SubjectError::Reserve { bytes, source }.into());
    }
    for page in 0..TASK_FRAMES {
        let byte = base.cast::<u8>().wrapping_add(page * FRAME_BYTES);
        // SAFETY: `byte` is inside the mapping, which is writable and only this thread's.
        unsafe { byte.write_volatile(1) };
    }
    // SAFETY: the mapping made above, whole, and nothing points into it any more.
    unsafe { libc::munmap(base, bytes) };
    Ok(())
}
