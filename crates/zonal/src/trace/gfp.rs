//! A request as Linux's `gfp` mask.

use crate::types::migrate_type::MigrateType;
use crate::types::request::Request;
use crate::types::units::Order;
use crate::types::zone_type::ZoneType;
use core::fmt;

const DMA: u32 = 0x01;
const HIGHMEM: u32 = 0x02;
const DMA32: u32 = 0x04;
const MOVABLE: u32 = 0x08;
const RECLAIMABLE: u32 = 0x10;
const HIGH: u32 = 0x20;
const IO: u32 = 0x40;
const FS: u32 = 0x80;
const NOWARN: u32 = 0x200;
const RETRY_MAYFAIL: u32 = 0x400;
const NOFAIL: u32 = 0x800;
const NORETRY: u32 = 0x1000;
const MEMALLOC: u32 = 0x2000;
const COMP: u32 = 0x4000;
const ZERO: u32 = 0x8000;
const NOMEMALLOC: u32 = 0x1_0000;
const HARDWALL: u32 = 0x2_0000;
const THIS_NODE: u32 = 0x4_0000;
const ATOMIC: u32 = 0x8_0000;
const ACCOUNT: u32 = 0x10_0000;
const DIRECT_RECLAIM: u32 = 0x40_0000;
const WRITE: u32 = 0x80_0000;
const KSWAPD_RECLAIM: u32 = 0x100_0000;

const RECLAIM: u32 = DIRECT_RECLAIM | KSWAPD_RECLAIM;
const KERNEL: u32 = RECLAIM | IO | FS;
const USER: u32 = KERNEL | HARDWALL;
const HIGHUSER_MOVABLE: u32 = USER | HIGHMEM | MOVABLE;
const TRANSHUGE_LIGHT: u32 = (HIGHUSER_MOVABLE | COMP | NOMEMALLOC | NOWARN) & !RECLAIM;

/// Names of masks, largest first: the first that is contained is printed, then the rest.
const NAMES: [(&str, u32); 36] = [
    ("GFP_TRANSHUGE", TRANSHUGE_LIGHT | DIRECT_RECLAIM),
    ("GFP_TRANSHUGE_LIGHT", TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", USER | HIGHMEM),
    ("GFP_USER", USER),
    ("GFP_KERNEL_ACCOUNT", KERNEL | ACCOUNT),
    ("GFP_KERNEL", KERNEL),
    ("GFP_NOFS", RECLAIM | IO),
    ("GFP_ATOMIC", HIGH | ATOMIC | KSWAPD_RECLAIM),
    ("GFP_NOIO", RECLAIM),
    ("GFP_NOWAIT", KSWAPD_RECLAIM),
    ("GFP_DMA", DMA),
    ("__GFP_HIGHMEM", HIGHMEM),
    ("GFP_DMA32", DMA32),
    ("__GFP_HIGH", HIGH),
    ("__GFP_ATOMIC", ATOMIC),
    ("__GFP_IO", IO),
    ("__GFP_FS", FS),
    ("__GFP_NOWARN", NOWARN),
    ("__GFP_RETRY_MAYFAIL", RETRY_MAYFAIL),
    ("__GFP_REPEAT", RETRY_MAYFAIL),
    ("__GFP_NOFAIL", NOFAIL),
    ("__GFP_NORETRY", NORETRY),
    ("__GFP_COMP", COMP),
    ("__GFP_ZERO", ZERO),
    ("__GFP_NOMEMALLOC", NOMEMALLOC),
    ("__GFP_MEMALLOC", MEMALLOC),
    ("__GFP_HARDWALL", HARDWALL),
    ("__GFP_THISNODE", THIS_NODE),
    ("__GFP_RECLAIMABLE", RECLAIMABLE),
    ("__GFP_MOVABLE", MOVABLE),
    ("__GFP_ACCOUNT", ACCOUNT),
    ("__GFP_WRITE", WRITE),
    ("__GFP_RECLAIM", RECLAIM),
    ("__GFP_DIRECT_RECLAIM", DIRECT_RECLAIM),
    ("__GFP_KSWAPD_RECLAIM", KSWAPD_RECLAIM),
];

/// A request as Linux's `gfp` mask, with the bits that Linux 4.16 gives them. All of a request
/// but its order and its node policy.
///
/// | request | Linux |
/// |---|---|
/// | [`migrate`](Request::migrate) | `__GFP_MOVABLE`, `__GFP_RECLAIMABLE` |
/// | [`zone_limit`](Request::zone_limit) | `GFP_DMA`, `GFP_DMA32`, `__GFP_HIGHMEM` for Movable |
/// | [`atomic`](Request::atomic), [`high`](Request::high) | `__GFP_ATOMIC`, `__GFP_HIGH` |
/// | no [`no_wait`](Request::no_wait) | `__GFP_DIRECT_RECLAIM`, `__GFP_IO`, `__GFP_FS` |
/// | [`write`](Request::write), [`zero`](Request::zero) | `__GFP_WRITE`, `__GFP_ZERO` |
/// | [`this_node`](Request::this_node) | `__GFP_THISNODE` |
///
/// ```
/// use zonal::policy::trace::Gfp;
/// use zonal::{MigrateType, Order, Request, ZoneType};
/// let user = Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
/// assert_eq!(format!("{}", Gfp::of(&user)), "GFP_HIGHUSER_MOVABLE");
/// let parsed = Gfp::parse("GFP_ATOMIC|__GFP_ZERO|GFP_DMA32")?;
/// let request = parsed.request(Order::ZERO);
/// assert!(request.is_atomic() && request.is_zero());
/// assert_eq!(request.limit(), ZoneType::Dma32);
/// assert!(Gfp::parse("GFP_KERNEL|__GFP_MAGIC").is_err());
/// # Ok::<(), zonal::policy::trace::UnknownFlag<'static>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Gfp(u32);

impl Gfp {
    /// What a request looks like in Linux.
    #[must_use]
    pub const fn of(request: &Request) -> Self {
        let mut bits = match (request.asked(), request.migrate_type()) {
            (ZoneType::Dma, _) => DMA,
            (ZoneType::Dma32, _) => DMA32,
            (ZoneType::Normal, _) => 0,
            // A caller that asks so in Linux allocates for user space.
            (ZoneType::Movable, MigrateType::Movable) => HIGHMEM | HARDWALL,
            (ZoneType::Movable, _) => HIGHMEM,
        };
        bits |= match request.migrate_type() {
            MigrateType::Movable => MOVABLE,
            MigrateType::Reclaimable => RECLAIMABLE,
            _ => 0,
        };
        bits |= if request.may_not_wait() { KSWAPD_RECLAIM } else { KERNEL };
        let access = request.access();
        let flags = [
            (access.high, HIGH),
            (access.atomic, ATOMIC),
            (request.is_write(), WRITE),
            (request.is_zero(), ZERO),
            (request.is_this_node(), THIS_NODE),
        ];
        let mut at = 0;
        while at < flags.len() {
            bits |= if flags[at].0 { flags[at].1 } else { 0 };
            at += 1;
        }
        Self(bits)
    }

    /// The request that this mask stands for, for a block of `order` from the local node. Bits
    /// that mean nothing to this allocator are left out.
    pub const fn request(self, order: Order) -> Request {
        let mut request = Request::new(order);
        request = match self.0 & (DMA | DMA32 | HIGHMEM) {
            0 => request,
            low if low & DMA != 0 => request.zone_limit(ZoneType::Dma),
            low if low & DMA32 != 0 => request.zone_limit(ZoneType::Dma32),
            _ => request.zone_limit(ZoneType::Movable),
        };
        request = match self.0 & (MOVABLE | RECLAIMABLE) {
            0 => request,
            bits if bits & MOVABLE != 0 => request.migrate(MigrateType::Movable),
            _ => request.migrate(MigrateType::Reclaimable),
        };
        if self.0 & HIGH != 0 {
            request = request.high();
        }
        if self.0 & ATOMIC != 0 {
            request = request.atomic();
        }
        if self.0 & DIRECT_RECLAIM == 0 {
            request = request.no_wait();
        }
        if self.0 & WRITE != 0 {
            request = request.write();
        }
        if self.0 & ZERO != 0 {
            request = request.zero();
        }
        if self.0 & THIS_NODE != 0 {
            request = request.this_node();
        }
        request
    }

    /// The mask.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A mask with these bits, of Linux 4.16.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Both masks together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The mask with that name, as Linux prints it; older kernels leave out the underscores.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let same = |known: &str| known == name || known.trim_start_matches('_') == name;
        match name {
            // Of older kernels: nothing to be said, one bit for both kinds of reclaim, a cold page.
            "none" | "0" | "__GFP_COLD" | "GFP_COLD" => Some(Self(0)),
            "__GFP_WAIT" | "GFP_WAIT" => Some(Self(RECLAIM)),
            "GFP_TEMPORARY" => Some(Self(KERNEL | RECLAIMABLE)),
            _ => NAMES.iter().find(|(known, _)| same(known)).map(|&(_, bits)| Self(bits)),
        }
    }

    /// Reads names separated by `|`.
    ///
    /// # Errors
    /// [`UnknownFlag`] with the first name that is none.
    pub fn parse(text: &str) -> Result<Self, UnknownFlag<'_>> {
        text.split('|').try_fold(Self(0), |all, name| {
            Self::from_name(name).map(|mask| all.with(mask)).ok_or(UnknownFlag(name))
        })
    }
}

impl fmt::Display for Gfp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        if rest == 0 {
            return f.write_str("none");
        }
        let mut bar = "";
        for (name, bits) in NAMES {
            if rest & bits == bits {
                write!(f, "{bar}{name}")?;
                rest &= !bits;
                bar = "|";
            }
        }
        if rest == 0 { Ok(()) } else { write!(f, "{bar}{rest:#x}") }
    }
}

/// A flag that has no meaning here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownFlag<'a>(pub &'a str);

impl fmt::Display for UnknownFlag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no allocation flag is called `{}`", self.0)
    }
}

impl core::error::Error for UnknownFlag<'_> {}
