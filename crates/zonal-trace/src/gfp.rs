//! The names that Linux 4.16 prints for allocation flags, written and read.
//!
//! ```
//! use zonal::policy::trace::Gfp;
//! use zonal::{MigrateType, Order, Request, ZoneType};
//! use zonal_trace::{gfp, text::Text};
//! let user = Request::frame().migrate(MigrateType::Movable).zone_limit(ZoneType::Movable);
//! assert_eq!(format!("{}", Text(Gfp::of(&user))), "GFP_HIGHUSER_MOVABLE");
//! let parsed = gfp::parse("GFP_ATOMIC|__GFP_ZERO|GFP_DMA32")?;
//! let request = parsed.request(Order::ZERO);
//! assert!(request.is_atomic() && request.is_zero());
//! assert_eq!(request.limit(), ZoneType::Dma32);
//! assert!(gfp::parse("GFP_KERNEL|__GFP_MAGIC").is_err());
//! # Ok::<(), zonal_trace::gfp::UnknownFlag<'static>>(())
//! ```

use crate::text::Text;
use core::fmt;
use zonal::policy::trace::Gfp;

// Flags that no request has.
const NOWARN: u32 = 0x200;
const RETRY_MAYFAIL: u32 = 0x400;
const NOFAIL: u32 = 0x800;
const NORETRY: u32 = 0x1000;
const MEMALLOC: u32 = 0x2000;
const COMP: u32 = 0x4000;
const NOMEMALLOC: u32 = 0x1_0000;
const ACCOUNT: u32 = 0x10_0000;

const RECLAIM: u32 = Gfp::DIRECT_RECLAIM | Gfp::KSWAPD_RECLAIM;
const USER: u32 = Gfp::KERNEL | Gfp::HARDWALL;
const HIGHUSER_MOVABLE: u32 = USER | Gfp::HIGHMEM | Gfp::MOVABLE;
const TRANSHUGE_LIGHT: u32 = (HIGHUSER_MOVABLE | COMP | NOMEMALLOC | NOWARN) & !RECLAIM;

/// Names of masks, largest first: the first that is contained is printed, then the rest.
const NAMES: [(&str, u32); 36] = [
    ("GFP_TRANSHUGE", TRANSHUGE_LIGHT | Gfp::DIRECT_RECLAIM),
    ("GFP_TRANSHUGE_LIGHT", TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", USER | Gfp::HIGHMEM),
    ("GFP_USER", USER),
    ("GFP_KERNEL_ACCOUNT", Gfp::KERNEL | ACCOUNT),
    ("GFP_KERNEL", Gfp::KERNEL),
    ("GFP_NOFS", RECLAIM | Gfp::IO),
    ("GFP_ATOMIC", Gfp::HIGH | Gfp::ATOMIC | Gfp::KSWAPD_RECLAIM),
    ("GFP_NOIO", RECLAIM),
    ("GFP_NOWAIT", Gfp::KSWAPD_RECLAIM),
    ("GFP_DMA", Gfp::DMA),
    ("__GFP_HIGHMEM", Gfp::HIGHMEM),
    ("GFP_DMA32", Gfp::DMA32),
    ("__GFP_HIGH", Gfp::HIGH),
    ("__GFP_ATOMIC", Gfp::ATOMIC),
    ("__GFP_IO", Gfp::IO),
    ("__GFP_FS", Gfp::FS),
    ("__GFP_NOWARN", NOWARN),
    ("__GFP_RETRY_MAYFAIL", RETRY_MAYFAIL),
    ("__GFP_REPEAT", RETRY_MAYFAIL),
    ("__GFP_NOFAIL", NOFAIL),
    ("__GFP_NORETRY", NORETRY),
    ("__GFP_COMP", COMP),
    ("__GFP_ZERO", Gfp::ZERO),
    ("__GFP_NOMEMALLOC", NOMEMALLOC),
    ("__GFP_MEMALLOC", MEMALLOC),
    ("__GFP_HARDWALL", Gfp::HARDWALL),
    ("__GFP_THISNODE", Gfp::THIS_NODE),
    ("__GFP_RECLAIMABLE", Gfp::RECLAIMABLE),
    ("__GFP_MOVABLE", Gfp::MOVABLE),
    ("__GFP_ACCOUNT", ACCOUNT),
    ("__GFP_WRITE", Gfp::WRITE),
    ("__GFP_RECLAIM", RECLAIM),
    ("__GFP_DIRECT_RECLAIM", Gfp::DIRECT_RECLAIM),
    ("__GFP_KSWAPD_RECLAIM", Gfp::KSWAPD_RECLAIM),
];

/// The mask with that name, as Linux prints it; older kernels leave out the underscores.
#[must_use]
pub fn from_name(name: &str) -> Option<Gfp> {
    let same = |known: &str| known == name || known.trim_start_matches('_') == name;
    match name {
        // Of older kernels: nothing to be said, one bit for both kinds of reclaim, a cold page.
        "none" | "0" | "__GFP_COLD" | "GFP_COLD" => Some(Gfp::from_bits(0)),
        "__GFP_WAIT" | "GFP_WAIT" => Some(Gfp::from_bits(RECLAIM)),
        "GFP_TEMPORARY" => Some(Gfp::from_bits(Gfp::KERNEL | Gfp::RECLAIMABLE)),
        _ => NAMES.iter().find(|(known, _)| same(known)).map(|&(_, bits)| Gfp::from_bits(bits)),
    }
}

/// Reads names separated by `|`.
///
/// # Errors
/// [`UnknownFlag`] with the first name that is none.
pub fn parse(text: &str) -> Result<Gfp, UnknownFlag<'_>> {
    text.split('|').try_fold(Gfp::from_bits(0), |all, name| {
        from_name(name).map(|mask| all.with(mask)).ok_or(UnknownFlag(name))
    })
}

impl fmt::Display for Text<Gfp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.bits();
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

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (name, bits) in NAMES {
            let gfp = Gfp::from_bits(bits);
            assert_eq!(from_name(name), Some(gfp), "{name}");
            for other in NAMES.map(|(_, other)| gfp.with(Gfp::from_bits(other))) {
                assert_eq!(parse(&Text(other).to_string()), Ok(other));
            }
        }
        assert_eq!(parse(&Text(Gfp::default()).to_string()), Ok(Gfp::default()));
        assert_eq!(from_name("GFP_WAIT"), from_name("__GFP_RECLAIM"));
    }

    #[test]
    fn what_has_no_name_is_told_apart() {
        let unnamed = Gfp::from_bits(Gfp::KERNEL | 1 << 30);
        assert_eq!(Text(unnamed).to_string(), "GFP_KERNEL|0x40000000");
        let error = parse("GFP_KERNEL|__GFP_MAGIC|?").expect_err("no such flag");
        assert_eq!(error, UnknownFlag("__GFP_MAGIC"));
        assert_eq!(error.to_string(), "no allocation flag is called `__GFP_MAGIC`");
    }
}
