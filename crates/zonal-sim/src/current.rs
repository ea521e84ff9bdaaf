//! The allocator of this thread's machine, for those that cannot have a reference to it: the frames of a page cache
//! belong to a type that outlives any run.

use crate::any_allocator::AnyAllocator;
use core::cell::Cell;
use core::mem;
use core::ptr::NonNull;

thread_local! {
    static CURRENT: Cell<Option<NonNull<dyn AnyAllocator>>> = const { Cell::new(None) };
}

/// The one before is that of the thread again when this is dropped; by a panic too.
struct Back(Option<NonNull<dyn AnyAllocator>>);

impl Drop for Back {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Makes an allocator that of this thread for as long as `f` runs.
pub(crate) fn scope<R>(allocator: &dyn AnyAllocator, f: impl FnOnce() -> R) -> R {
    let pointer = NonNull::from(allocator);
    // SAFETY: a pointer stays what it is, and this one forgets how long what it points to is there. It is read
    // in `with` alone, which says why it is there.
    let pointer = unsafe {
        mem::transmute::<NonNull<dyn AnyAllocator + '_>, NonNull<dyn AnyAllocator + 'static>>(
            pointer,
        )
    };
    let _back = Back(CURRENT.replace(Some(pointer)));
    f()
}

/// Runs `f` with the allocator of this thread; `None` if there is none.
pub(crate) fn with<R>(f: impl FnOnce(&dyn AnyAllocator) -> R) -> Option<R> {
    let pointer = CURRENT.get()?;
    // SAFETY: `scope` has put it there, which is borrowing the allocator still: a local of it takes the pointer away
    // before it returns or is unwound, and cannot be forgotten. `f` cannot keep the reference. A virtual CPU that
    // lets others go on inside of `f` goes on, or is unwound, inside of `scope` too: `coroutine::run_all` resumes it,
    // on this thread, and does not return before all virtual CPUs have.
    Some(f(unsafe { pointer.as_ref() }))
}
