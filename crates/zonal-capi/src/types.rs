//! The structs of the header.

use crate::Code;
use core::ffi::c_void;
use zonal::info::ZoneInfo;
use zonal::{MigrateType, NodeId, NodeMask, NodePolicy, Order, Request, ZoneType};

/// A part of the address space, in bytes. Regions come in any order and may overlap: what is reserved wins.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BootRegion {
    /// Its first byte.
    pub start: u64,
    /// How many.
    pub bytes: u64,
    /// A `zonal_memory`.
    pub kind: u32,
    /// Its node.
    pub node: u32,
}

/// How the allocator is to be. A field that is 0 says nothing, so clear the struct, set `size` to its size, then what you want. A
/// field that the library does not know, and that is not 0, is refused.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Settings {
    /// The struct's own size.
    pub size: u32,
    /// CPUs with caches of their own; in user space 0 is all of the machine.
    pub cpus: u32,
    /// Bytes of the pool. User space only, as the next.
    pub bytes: u64,
    /// Bytes of address space that are backed on touch, if more.
    pub reserve: u64,
    /// Order of a pageblock; 0: 9. Kernels only, as all from here on.
    pub pageblock_order: u32,
    /// Reserved: 0.
    pub reserved: u32,
    /// Frames set aside for movable requests.
    pub movable_frames: u64,
    /// Frames that are kept free for urgent requests; 0: as Linux does, by the memory's size.
    pub min_free_frames: u64,
    /// The address below which the tables are to lie.
    pub tables_below: u64,
}

impl Settings {
    /// Reads the settings of a caller, which may be of another version.
    ///
    /// # Safety
    /// The pointer is null, or there are as many bytes as its field `size` says, which is the first.
    pub(crate) unsafe fn read(from: *const Self) -> Result<Self, Code> {
        if from.is_null() {
            return Err(Code::Null);
        }
        // SAFETY: the first field is there.
        let size = unsafe { (*from).size } as usize;
        if size < 8 {
            return Err(Code::Argument);
        }
        let known = size.min(size_of::<Self>());
        // SAFETY: the caller's promise.
        let rest = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), size) };
        // What this version does not know must not be asked for.
        if rest[known..].iter().any(|&byte| byte != 0) {
            return Err(Code::Argument);
        }
        let mut settings = Self::default();
        // SAFETY: `known` bytes are at both, which do not overlap; any bytes are integers.
        unsafe {
            core::ptr::copy_nonoverlapping(
                from.cast::<u8>(),
                (&raw mut settings).cast::<u8>(),
                known,
            );
        }
        if settings.reserved != 0 { Err(Code::Argument) } else { Ok(settings) }
    }
}

/// What a part of the address space is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Memory {
    /// Memory that is free.
    Usable = 0,
    /// In use for good.
    Reserved = 1,
    /// In use until `zonal_release`.
    ReclaimLater = 2,
    /// Lent to movable requests until a device wants it.
    Cma = 3,
    /// Not there; may come by `zonal_online`.
    Offline = 4,
}

/// Whether the owner of a block lets it be moved, or gives it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Migrate {
    /// Neither.
    Unmovable = 0,
    /// It may be moved.
    Movable = 1,
    /// It can be given back.
    Reclaimable = 2,
}

/// The highest zone type that a request may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Limit {
    /// Below 16 MiB.
    Dma = 1,
    /// Below 4 GiB.
    Dma32 = 2,
    /// Anywhere, but for what is set aside for movable requests.
    Normal = 3,
    /// Anywhere; movable requests only.
    Movable = 4,
}

/// What a request's `nodes` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Nodes {
    /// Nothing: the CPU's node first.
    Any = 0,
    /// The number of the node that is tried first.
    Preferred = 1,
    /// A mask of the only nodes.
    Only = 2,
    /// A mask of nodes in turn.
    InTurn = 3,
}

/// A bit of a request's `flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Flag {
    /// Cannot wait at all: from a handler of interrupts.
    Atomic = 1,
    /// Important.
    High = 2,
    /// Neither compaction nor reclaim.
    NoWait = 4,
    /// Only the preferred or local node.
    ThisNode = 8,
    /// Filled with zero bytes.
    Zero = 16,
}

impl Flag {
    const ALL: u32 = 31;
}

// As a caller's number has them. Private, so not of the header.
const ANY: u8 = Nodes::Any as u8;
const PREFERRED: u8 = Nodes::Preferred as u8;
const ONLY: u8 = Nodes::Only as u8;
const IN_TURN: u8 = Nodes::InTurn as u8;

/// What is asked for. All zero: one unmovable frame.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AllocRequest {
    /// 0 to 10: 2^order frames.
    pub order: u8,
    /// A `zonal_migrate`.
    pub migrate: u8,
    /// A `zonal_limit`, the highest zone type; 0: Normal.
    pub zone_limit: u8,
    /// A `zonal_nodes`: what `nodes` is.
    pub node_policy: u8,
    /// Bits of `zonal_flag`.
    pub flags: u32,
    /// A node, or a mask of them.
    pub nodes: u64,
}

impl AllocRequest {
    /// The request of a caller; a null pointer is a single frame.
    ///
    /// # Safety
    /// The pointer is null or readable.
    #[inline]
    pub(crate) unsafe fn read(from: *const Self) -> Result<Request, Code> {
        // SAFETY: the caller's promise.
        unsafe { from.as_ref() }.map_or(Ok(Request::frame()), Self::request)
    }

    #[inline]
    fn request(&self) -> Result<Request, Code> {
        let order = Order::new(self.order).ok_or(Code::Argument)?;
        let migrate =
            MigrateType::from_number(self.migrate).filter(|ty| *ty <= MigrateType::Reclaimable);
        let limit = match self.zone_limit {
            0 => ZoneType::Normal,
            at => *ZoneType::ALL.get(usize::from(at - 1)).ok_or(Code::Argument)?,
        };
        if self.flags & !Flag::ALL != 0 {
            return Err(Code::Argument);
        }
        let mut request =
            Request::new(order).migrate(migrate.ok_or(Code::Argument)?).zone_limit(limit);
        let has = |flag| self.flags & flag as u32 != 0;
        if has(Flag::Atomic) {
            request = request.atomic();
        }
        if has(Flag::High) {
            request = request.high();
        }
        if has(Flag::NoWait) {
            request = request.no_wait();
        }
        if has(Flag::ThisNode) {
            request = request.this_node();
        }
        if has(Flag::Zero) {
            request = request.zero();
        }
        Ok(match self.node_policy {
            ANY => request,
            policy => request.nodes(self.policy(policy)?),
        })
    }

    fn policy(&self, policy: u8) -> Result<NodePolicy, Code> {
        let mask = || {
            let members = (0..64).filter(|bit| self.nodes >> bit & 1 == 1);
            members.fold(NodeMask::NONE, |mask, bit| mask.with(NodeId(bit)))
        };
        match policy {
            PREFERRED => {
                let node = u8::try_from(self.nodes).map_err(|_| Code::Argument)?;
                Ok(NodePolicy::Preferred(NodeId(node)))
            }
            ONLY => Ok(NodePolicy::Bind(mask())),
            IN_TURN => Ok(NodePolicy::Interleave(mask())),
            _ => Err(Code::Argument),
        }
    }
}

/// A zone as it is now, in frames. Set `size` before the call: no more is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ZoneNumbers {
    /// The struct's own size.
    pub size: u32,
    /// Its node.
    pub node: u32,
    /// Its type: 0 DMA, 1 DMA32, 2 Normal, 3 Movable.
    pub zone_type: u32,
    /// Which of the instances of the type on the node.
    pub instance: u32,
    /// The first frame.
    pub start: u64,
    /// Frames from the first to the last.
    pub spanned: u64,
    /// Frames that are there.
    pub present: u64,
    /// Frames that are the allocator's.
    pub managed: u64,
    /// Frames that are free.
    pub free: u64,
    /// Frames that CPUs keep.
    pub cached: u64,
    /// Free frames withdrawn from requests.
    pub isolated: u64,
    /// The watermarks.
    pub min: u64,
    /// The watermarks.
    pub low: u64,
    /// The watermarks.
    pub high: u64,
}

impl ZoneNumbers {
    /// # Safety
    /// As many bytes as the field `size` at `to` says can be written there; it is not null.
    pub(crate) unsafe fn write(zone: &ZoneInfo, to: *mut Self) -> Result<(), Code> {
        // SAFETY: the first field is there.
        let room = unsafe { (*to).size };
        if room < 8 {
            return Err(Code::Argument);
        }
        let len = (room as usize).min(size_of::<Self>());
        let numbers = Self {
            size: len as u32,
            node: u32::from(zone.node.0),
            zone_type: zone.zone_type.index() as u32,
            instance: u32::from(zone.instance),
            start: zone.start.get(),
            spanned: zone.spanned,
            present: zone.present,
            managed: zone.managed,
            free: zone.free,
            cached: zone.cached,
            isolated: zone.isolated,
            min: zone.watermarks.min,
            low: zone.watermarks.low,
            high: zone.watermarks.high,
        };
        let from = (&raw const numbers).cast::<c_void>();
        // SAFETY: the caller's promise; the numbers are elsewhere.
        unsafe { core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), len) };
        Ok(())
    }
}
