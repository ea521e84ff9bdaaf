//! What the kernel's memory management costs, from the outside.
//!
//! Reading a page that was never written maps the kernel's zero page: a fault with nothing to
//! allocate, clear or put on a list. What a fault that writes costs beyond that is exactly those
//! three. Unmapping zero pages likewise frees nothing.
//!
//! ```
//! use zonal_calibrate::paging;
//! use zonal_calibrate::quantity::{Ledger, Quantity};
//!
//! let mut ledger = Ledger::default();
//! paging::round(&mut ledger)?;
//! assert!(ledger.figure(Quantity::ReadFault).is_some());
//! # Ok::<(), zonal_calibrate::error::CalibrateError>(())
//! ```

use core::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::buffer::{Advice, Buffer, LINE};
use super::error::CalibrateError;
use super::quantity::{Ledger, Quantity, each};
use zonal_bench::memory::Region;
use zonal_bench::subject::FRAME_BYTES;

/// Pages of a range: 4 MiB.
const PAGES: usize = 1024;
/// Ranges mapped and unmapped in a sample.
const RANGES: usize = 300;
/// Pages given up one at a time.
const DROPS: usize = 512;
const HUGE: usize = 2 << 20;
/// Huge pages of a range.
const HUGE_PAGES: usize = 128;
const LINES_OF_PAGE: usize = FRAME_BYTES / LINE;

/// Takes a sample of everything on the calling thread.
///
/// # Errors
///
/// [`CalibrateError::Memory`], [`CalibrateError::Advice`].
pub fn round(ledger: &mut Ledger) -> Result<(), CalibrateError> {
    ledger.take([Quantity::ReadFault, Quantity::UnmapZero], || {
        range(|buffer, page| {
            buffer.line(page * LINES_OF_PAGE).load(Ordering::Relaxed);
        })
    })?;
    ledger.take([Quantity::WriteFault, Quantity::UnmapPage], || {
        range(|buffer, page| buffer.line(page * LINES_OF_PAGE).store(1, Ordering::Relaxed))
    })?;
    ledger.take([Quantity::MapRange], map_ranges)?;
    ledger.take([Quantity::DropOne, Quantity::DropNone], drops)?;
    if let Some((ns, lost)) = huge_faults()? {
        let lost_cpu = lost;
        ledger.add(Quantity::HugeFault, super::quantity::Sample { value: ns, lost_cpu });
    }
    Ok(())
}

/// Ns to touch a page for the first time, and to unmap it, in a range of many.
fn range(touch: impl Fn(&Buffer, usize)) -> Result<[f64; 2], CalibrateError> {
    let buffer = Buffer::new(PAGES * FRAME_BYTES, Advice::Single)?;
    let start = Instant::now();
    for page in 0..PAGES {
        touch(&buffer, page);
    }
    let touched = Instant::now();
    drop(buffer);
    let unmapped = touched.elapsed();
    Ok([each(touched - start, PAGES), each(unmapped, PAGES)])
}

/// Ns to map or unmap a range: half of what both take.
fn map_ranges() -> Result<[f64; 1], CalibrateError> {
    let start = Instant::now();
    for _ in 0..RANGES {
        drop(Region::reserve(1 << 20)?);
    }
    Ok([each(start.elapsed(), 2 * RANGES)])
}

/// Ns to give up one page that is mapped, and one that is not.
fn drops() -> Result<[f64; 2], CalibrateError> {
    let mut buffer = Buffer::new(DROPS * FRAME_BYTES, Advice::Single)?;
    for page in 0..DROPS {
        buffer.line(page * LINES_OF_PAGE).load(Ordering::Relaxed);
    }
    let mut times = [0.0; 2];
    for time in &mut times {
        let start = Instant::now();
        for page in 0..DROPS {
            buffer.give_up(page)?;
        }
        *time = each(start.elapsed(), DROPS);
    }
    Ok(times)
}

/// Ns to map the huge zero page; `None` if the kernel maps small ones here.
fn huge_faults() -> Result<Option<(f64, bool)>, CalibrateError> {
    let buffer = Buffer::new(HUGE_PAGES * HUGE, Advice::Huge)?;
    let read = |offset: usize| {
        for page in 0..HUGE_PAGES {
            buffer.line((page * HUGE + offset) / LINE).load(Ordering::Relaxed);
        }
    };
    let start_faults = minor_faults();
    let (ns, lost_cpu) = super::quantity::watched(|| {
        let start = Instant::now();
        read(0);
        each(start.elapsed(), HUGE_PAGES)
    });
    let faults = minor_faults();
    // A second page of each: it is there already, or the first fault mapped no huge page.
    read(FRAME_BYTES);
    let more = minor_faults() - faults;
    let huge = faults - start_faults >= HUGE_PAGES as u64 && more < HUGE_PAGES as u64 / 2;
    Ok(huge.then_some((ns, lost_cpu)))
}

/// Page faults of the calling thread so far that did not need a disk.
fn minor_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a writable `rusage`.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: an `rusage` is made of integers, and all of it was zeroed.
    let usage = unsafe { usage.assume_init() };
    usage.ru_minflt.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_written_costs_more_than_one_that_is_read() {
        let mut ledger = Ledger::default();
        for _ in 0..9 {
            round(&mut ledger).expect("memory");
        }
        let least = |quantity| ledger.figure(quantity).expect("sampled").min;
        assert!(least(Quantity::WriteFault) > least(Quantity::ReadFault));
        assert!(least(Quantity::UnmapPage) > least(Quantity::UnmapZero));
        assert!(least(Quantity::DropOne) > least(Quantity::DropNone));
        assert!(least(Quantity::MapRange) > 0.0);
    }

    #[test]
    fn faults_are_counted() {
        let before = minor_faults();
        range(|buffer, page| buffer.line(page * LINES_OF_PAGE).store(1, Ordering::Relaxed))
            .expect("memory");
        assert!(minor_faults() - before >= PAGES as u64);
    }
}
