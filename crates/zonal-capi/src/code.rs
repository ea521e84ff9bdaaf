//! What went wrong, as a number and as a text.

use core::ffi::{CStr, c_char, c_int};
use zonal::FreeError;
use zonal::error::{AllocError, AllocReason, ContiguousError, RangeError, ResizeError};

/// Why nothing was done. The numbers do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[non_exhaustive]
pub enum Code {
    /// All went well.
    Ok = 0,
    /// A pointer is null.
    Null = 1,
    /// An argument, or a field of a struct, has a value that cannot be.
    Argument = 2,
    /// The memory map cannot be.
    Map = 3,
    /// No allocator can be planned for the map and the settings.
    Plan = 4,
    /// There is no room for the tables.
    Tables = 5,
    /// The allocator is there already.
    Booted = 6,
    /// No zone has such a block above the watermark.
    Exhausted = 7,
    /// No zone fits the request's nodes and zone limit.
    NoZone = 8,
    /// The host cannot fill frames with zero bytes.
    CannotZero = 9,
    /// Frames that are not the allocator's.
    Foreign = 10,
    /// The frames are free already.
    DoubleFree = 11,
    /// Allocated with another order, inside a block, or (`zonal_free_pages`) not allocated.
    WrongOrder = 12,
    /// The frames are isolated, for another caller.
    Isolated = 13,
    /// Some of the frames are in use.
    InUse = 14,
    /// The memory is being changed at this moment: try again.
    Busy = 15,
    /// The frames are the allocator's already.
    Online = 16,
    /// Empty, not aligned, or of more than one zone.
    Range = 17,
    /// The buffer is too small.
    Buffer = 18,
    /// The operating system has refused memory.
    Memory = 19,
    /// The allocator's tables are damaged.
    Damaged = 20,
}

impl Code {
    /// All of them, by their numbers.
    pub const ALL: [Self; 21] = [
        Self::Ok,
        Self::Null,
        Self::Argument,
        Self::Map,
        Self::Plan,
        Self::Tables,
        Self::Booted,
        Self::Exhausted,
        Self::NoZone,
        Self::CannotZero,
        Self::Foreign,
        Self::DoubleFree,
        Self::WrongOrder,
        Self::Isolated,
        Self::InUse,
        Self::Busy,
        Self::Online,
        Self::Range,
        Self::Buffer,
        Self::Memory,
        Self::Damaged,
    ];

    const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"all went well",
            Self::Null => c"a pointer is null",
            Self::Argument => c"an argument or a field has a value that cannot be",
            Self::Map => c"the memory map cannot be",
            Self::Plan => c"no allocator can be planned for the map and the settings",
            Self::Tables => c"there is no room for the tables",
            Self::Booted => c"the allocator is there already",
            Self::Exhausted => c"no zone has such a block above the watermark",
            Self::NoZone => c"no zone fits the nodes and the zone limit of the request",
            Self::CannotZero => c"the host cannot fill frames with zero bytes",
            Self::Foreign => c"the frames are not the allocator's",
            Self::DoubleFree => c"the frames are free already",
            Self::WrongOrder => c"the frames are not allocated, or with another order",
            Self::Isolated => c"the frames are isolated",
            Self::InUse => c"some of the frames are in use",
            Self::Busy => c"the memory is being changed at this moment: try again",
            Self::Online => c"the frames are the allocator's already",
            Self::Range => c"the range is empty, not aligned, or of more than one zone",
            Self::Buffer => c"the buffer is too small",
            Self::Memory => c"the operating system has refused memory",
            Self::Damaged => c"the tables of the allocator are damaged",
        }
    }
}

/// The text of a code: a string that stays. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_error_text(code: c_int) -> *const c_char {
    let known = usize::try_from(code).ok().and_then(|at| Code::ALL.get(at));
    known.map_or(c"an unknown code", |code| code.text()).as_ptr()
}

impl From<AllocError> for Code {
    fn from(error: AllocError) -> Self {
        match error.reason {
            AllocReason::NoZone => Self::NoZone,
            AllocReason::NotRequestable => Self::Argument,
            AllocReason::CannotZero => Self::CannotZero,
            _ => Self::Exhausted,
        }
    }
}

impl From<FreeError> for Code {
    fn from(error: FreeError) -> Self {
        match error {
            FreeError::DoubleFree { .. } => Self::DoubleFree,
            FreeError::WrongOrder { .. } | FreeError::Inner { .. } => Self::WrongOrder,
            FreeError::Isolated { .. } => Self::Isolated,
            FreeError::Damaged { .. } => Self::Damaged,
            _ => Self::Foreign,
        }
    }
}

impl From<RangeError> for Code {
    fn from(error: RangeError) -> Self {
        match error {
            RangeError::Frame(_) => Self::Foreign,
            RangeError::Isolated { .. } | RangeError::NotIsolated { .. } => Self::Isolated,
            RangeError::Unmovable { .. }
            | RangeError::Refused { .. }
            | RangeError::NoTarget { .. }
            | RangeError::InUse { .. } => Self::InUse,
            RangeError::Busy { .. } => Self::Busy,
            RangeError::NotAllocated { .. } => Self::WrongOrder,
            _ => Self::Range,
        }
    }
}

impl From<ContiguousError> for Code {
    fn from(error: ContiguousError) -> Self {
        match error {
            ContiguousError::Empty
            | ContiguousError::BadAlignment { .. }
            | ContiguousError::Request(AllocReason::NotRequestable) => Self::Argument,
            ContiguousError::Request(AllocReason::NoZone) => Self::NoZone,
            ContiguousError::Request(AllocReason::CannotZero) => Self::CannotZero,
            _ => Self::Exhausted,
        }
    }
}

impl From<ResizeError> for Code {
    fn from(error: ResizeError) -> Self {
        match error {
            ResizeError::Range(error) => error.into(),
            ResizeError::NotOffline { .. } => Self::Argument,
            ResizeError::Online { .. } => Self::Online,
            _ => Self::Busy,
        }
    }
}
