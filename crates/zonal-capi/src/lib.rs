//! The C interface of [zonal]: what `include/zonal.h` declares.
//!
//! | built | for | begins with | host |
//! |---|---|---|---|
//! | with the feature `std` (the default) | user space on Linux | `zonal_open` | threads, of `zonal-host` |
//! | without | a kernel | `zonal_boot` | functions of the kernel, by their names: `zonal_host_…` |
//!
//! Everything after that is the same. A function that can fail returns a [code](Code), 0 if all went well;
//! [`zonal_error_text`] has its text. Frames are numbers: a physical address divided by 4096; in
//! user space `zonal_address` says where one is.
//!
//! `cargo xtask capi --prefix DIR` builds the libraries and installs them with the header. From Rust use the
//! crates `zonal-kernel` and `zonal-host`.
//!
//! ```
//! use zonal_capi::{Code, zonal_error_text};
//! // SAFETY: the text is a string of C that stays.
//! let text = unsafe { core::ffi::CStr::from_ptr(zonal_error_text(Code::DoubleFree as i32)) };
//! assert_eq!(text.to_str(), Ok("the frames are free already"));
//! ```
#![cfg_attr(not(feature = "std"), no_std)]

mod calls;
mod code;
#[cfg(not(feature = "std"))]
mod kernel;
mod pages;
#[cfg(feature = "std")]
mod pool;
mod reports;
mod types;

pub use calls::{
    zonal_address, zonal_alloc, zonal_alloc_bulk, zonal_drain, zonal_free, zonal_free_bulk,
};
pub use code::{Code, zonal_error_text};
#[cfg(not(feature = "std"))]
pub use kernel::{KernelMachine, zonal_boot};
pub use pages::{
    zonal_alloc_at, zonal_alloc_pages, zonal_free_pages, zonal_offline, zonal_online, zonal_release,
};
#[cfg(feature = "std")]
pub use pool::{Pool, zonal_close, zonal_open};
pub use reports::{Report, zonal_report, zonal_zone_info};
pub use types::{
    AllocRequest, BootRegion, Flag, Limit, Memory, Migrate, Nodes, Settings, ZoneNumbers,
};

/// What a pointer to the allocator points at.
#[cfg(feature = "std")]
pub type Handle = Pool;
/// What a pointer to the allocator points at.
#[cfg(not(feature = "std"))]
pub type Handle = kernel::KernelFrames;

/// The host.
#[cfg(feature = "std")]
type Host = zonal_host::Threads;
/// The host.
#[cfg(not(feature = "std"))]
type Host = zonal_kernel::Kernel<kernel::KernelMachine>;

/// The allocator behind a pointer.
type Inner<'a> = zonal::Allocator<'a, Host, zonal::preset::Zonal>;

/// The allocator behind a pointer of a caller.
///
/// # Safety
/// It is null, or from `zonal_open` or `zonal_boot`, and not closed as long as the answer is used.
unsafe fn inner<'a>(allocator: *const Handle) -> Result<&'a Inner<'a>, Code> {
    // SAFETY: the caller's promise.
    let handle = unsafe { allocator.as_ref() }.ok_or(Code::Null)?;
    #[cfg(feature = "std")]
    let handle = handle.allocator();
    Ok(handle)
}

/// As a number for C.
fn number(done: Result<(), Code>) -> core::ffi::c_int {
    match done {
        Ok(()) => Code::Ok as core::ffi::c_int,
        Err(code) => code as core::ffi::c_int,
    }
}

/// Programs that users read and copy: compiled as examples of the documentation.
#[cfg(all(doctest, feature = "std"))]
mod page {
    #[doc = include_str!("../README.md")]
    struct Own;
}
