//! The structs of the header.

use crate::Code;
use core::ffi::c_void;
use zonal::info::ZoneInfo;
use zonal::{MigrateType, NodeId, NodeMask, NodePolicy, Order, Request, ZoneType};

/// `zonal_region`: a part of the address space, in bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct BootRegion {
    /// Its first byte.
    pub start: u64,
    /// How many.
    pub bytes: u64,
    /// What it is: a number of [`RegionKind`](zonal::map::RegionKind), in its order.
    pub kind: u32,
    /// Its node.
    pub node: u32,
}

/// `zonal_config`: how the allocator is to be. A field that is 0 says nothing.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Settings {
    /// The struct's own size: a caller that was compiled with an older header has fewer fields.
    pub size: u32,
    /// CPUs with caches of their own. 0: those of the machine, in user space.
    pub cpus: u32,
    /// Bytes of the pool. User space only.
    pub bytes: u64,
    /// Bytes of address space that are backed on touch, if more than `bytes`. User space only.
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

/// The bits of [`AllocRequest::flags`].
#[derive(Clone, Copy, Debug)]
pub struct Flags;

impl Flags {
    /// Cannot wait at all.
    pub const ATOMIC: u32 = 1;
    /// Important.
    pub const HIGH: u32 = 2;
    /// Neither compaction nor reclaim.
    pub const NO_WAIT: u32 = 4;
    /// Only the preferred or local node.
    pub const THIS_NODE: u32 = 8;
    /// Filled with zero bytes.
    pub const ZERO: u32 = 16;
    const ALL: u32 = 31;
}

/// `zonal_request`. All zero: a single unmovable frame.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct AllocRequest {
    /// Order of the block.
    pub order: u8,
    /// Migrate type: 0 unmovable, 1 movable, 2 reclaimable.
    pub migrate: u8,
    /// Highest zone type + 1; 0: Normal.
    pub zone_limit: u8,
    /// What `nodes` is: 0 nothing, 1 the preferred node, 2 a mask of the only nodes, 3 of nodes in turn.
    pub node_policy: u8,
    /// [`Flags`].
    pub flags: u32,
    /// A node, or a mask.
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
        if self.flags & !Flags::ALL != 0 {
            return Err(Code::Argument);
        }
        let mut request =
            Request::new(order).migrate(migrate.ok_or(Code::Argument)?).zone_limit(limit);
        let has = |flag| self.flags & flag != 0;
        if has(Flags::ATOMIC) {
            request = request.atomic();
        }
        if has(Flags::HIGH) {
            request = request.high();
        }
        if has(Flags::NO_WAIT) {
            request = request.no_wait();
        }
        if has(Flags::THIS_NODE) {
            request = request.this_node();
        }
        if has(Flags::ZERO) {
            request = request.zero();
        }
        Ok(match self.node_policy {
            0 => request,
            policy => request.nodes(self.policy(policy)?),
        })
    }

    fn policy(&self, policy: u8) -> Result<NodePolicy, Code> {
        let mask = || {
            let members = (0..64).filter(|bit| self.nodes >> bit & 1 == 1);
            members.fold(NodeMask::NONE, |mask, bit| mask.with(NodeId(bit)))
        };
        match policy {
            1 => {
                let node = u8::try_from(self.nodes).map_err(|_| Code::Argument)?;
                Ok(NodePolicy::Preferred(NodeId(node)))
            }
            2 => Ok(NodePolicy::Bind(mask())),
            3 => Ok(NodePolicy::Interleave(mask())),
            _ => Err(Code::Argument),
        }
    }
}

/// `zonal_zone`: a zone as it is now, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ZoneNumbers {
    /// The struct's own size: written by the caller, and no more is written to it.
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
