//! What can be done to an allocator. Commands come from proptest ([`strategy`]) or from bytes
//! ([`from_bytes`]), and a sequence prints itself as the source of a test ([`as_source`]).
//!
//! Numbers that choose something (`nth`, CPUs, zones) are taken modulo what there is, so that
//! every command means something in every world.
//!
//! ```
//! use zonal_testkit::command::{Command, as_source};
//! use zonal_testkit::shape::Shape;
//! let source = as_source("TinyZonal", Shape::Flat, &[Command::DrainAll]);
//! assert!(source.contains("Command::DrainAll,"));
//! ```

mod decode;
mod generate;

pub use decode::from_bytes;
pub use generate::{commands, strategy};

use crate::shape::Shape;
use std::fmt::{self, Write};
use zonal::{MigrateType, NodeId, NodeMask, NodePolicy, Order, Request, ZoneType};

/// Which nodes may serve an [`Ask`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nodes {
    /// [`NodePolicy::Local`].
    Local,
    /// [`NodePolicy::Preferred`].
    Preferred(u8),
    /// [`NodePolicy::Bind`], by the bits of the number.
    Bind(u8),
    /// [`NodePolicy::Interleave`], by the bits of the number.
    Interleave(u8),
}

/// A request, as plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The order, modulo 11.
    pub order: u8,
    /// The migrate type's number, modulo 6: 3 to 5 are refused.
    pub migrate: u8,
    /// The zone limit's number, modulo 4.
    pub limit: u8,
    /// Bits: 1 atomic, 2 high, 4 no wait, 8 this node, 16 write, 32 zero.
    pub flags: u8,
    /// The nodes.
    pub nodes: Nodes,
}

impl Ask {
    /// As [`Request::frame`].
    pub const FRAME: Self = Self { order: 0, migrate: 0, limit: 2, flags: 0, nodes: Nodes::Local };

    /// The request.
    pub fn request(self) -> Request {
        let order = Order::new(self.order % 11).unwrap_or(Order::ZERO);
        let limit = ZoneType::ALL[usize::from(self.limit % 4)];
        let migrate = MigrateType::ALL[usize::from(self.migrate % 6)];
        let mask = |bits: u8| {
            let members = (0..8).filter(|bit| bits >> bit & 1 == 1);
            members.fold(NodeMask::NONE, |mask, bit| mask.with(NodeId(bit)))
        };
        let nodes = match self.nodes {
            Nodes::Local => NodePolicy::Local,
            Nodes::Preferred(node) => NodePolicy::Preferred(NodeId(node % 16)),
            Nodes::Bind(bits) => NodePolicy::Bind(mask(bits)),
            Nodes::Interleave(bits) => NodePolicy::Interleave(mask(bits)),
        };
        let mut request = Request::new(order).migrate(migrate).zone_limit(limit).nodes(nodes);
        let flags: [fn(Request) -> Request; 6] = [
            Request::atomic,
            Request::high,
            Request::no_wait,
            Request::this_node,
            Request::write,
            Request::zero,
        ];
        for (bit, flag) in flags.into_iter().enumerate() {
            if self.flags >> bit & 1 == 1 {
                request = flag(request);
            }
        }
        request
    }
}

/// One thing to do. See the [module](self) for the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Allocates a block.
    Alloc(Ask),
    /// Frees a block that is out.
    Free {
        /// Which.
        nth: u16,
    },
    /// Frees any frame with any order: nearly always wrong.
    FreeAny {
        /// The frame, from 16 before the frame table on.
        frame: u16,
        /// The order.
        order: u8,
    },
    /// Frees a block that is out with another order, or a frame inside it.
    FreePart {
        /// Which block.
        nth: u16,
        /// The frame in it.
        inner: u16,
        /// The order.
        order: u8,
    },
    /// Allocates many blocks at once.
    AllocBulk {
        /// What.
        ask: Ask,
        /// How many.
        count: u16,
    },
    /// Frees many blocks as if they were single frames: blocks of higher orders are refused.
    FreeBulk {
        /// The first.
        nth: u16,
        /// How many.
        count: u16,
        /// Whether the first is given a second time.
        twice: bool,
    },
    /// Allocates until that fails, then frees a few.
    Fill {
        /// What.
        ask: Ask,
        /// How many to free.
        spare: u8,
    },
    /// Frees all that is out.
    FreeAll,
    /// Drains a CPU.
    DrainCpu {
        /// Which.
        cpu: u8,
    },
    /// Drains everything.
    DrainAll,
    /// Goes on on another CPU, if the host can.
    SwitchCpu {
        /// Which.
        cpu: u8,
    },
    /// Makes a handle the owner of the caches of a CPU, or gives them up. The owner's handle is used when running
    /// on that CPU.
    Own {
        /// Which.
        cpu: u8,
        /// Whether they are owned.
        on: bool,
    },
    /// Sets a zone's watermarks.
    SetWatermarks {
        /// Which zone.
        zone: u8,
        /// The min mark, frames.
        min: u16,
        /// Distance to the low, and from it to the high mark.
        step: u16,
    },
    /// Boosts a zone's watermarks.
    Boost {
        /// Which zone.
        zone: u8,
        /// By how many frames.
        frames: u16,
    },
    /// Brings memory online that may come later, up to the end of its range.
    Online {
        /// The pageblock that it begins with.
        nth: u8,
        /// How many pageblocks.
        count: u8,
    },
    /// Takes such memory offline.
    Offline {
        /// The pageblock that it begins with.
        nth: u8,
        /// How many pageblocks.
        count: u8,
    },
    /// Allocates frames in a row.
    AllocPages {
        /// What; the order does not matter.
        ask: Ask,
        /// How many, modulo 1200 and at least one.
        count: u16,
        /// The order of the block at whose multiple they begin, modulo 12.
        align: u8,
        /// The frame below which they lie, from the frame table's first on; 0: anywhere.
        below: u16,
    },
    /// Frees frames in a row, from a block that is out on.
    FreePages {
        /// Which block.
        nth: u16,
        /// How many frames.
        count: u16,
    },
    /// Allocates just these frames.
    AllocAt {
        /// The first, from the frame table's first on.
        frame: u16,
        /// How many.
        count: u16,
    },
    /// Releases frames that are not the allocator's.
    Release {
        /// The first, from the frame table's first on.
        frame: u16,
        /// How many.
        count: u16,
    },
    /// Leaves a block to the host, which frees it when asked to reclaim.
    Pledge {
        /// Which.
        nth: u16,
    },
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What `Debug` derives is source but for the paths of the enums.
        let text = format!("{self:?}").replace("nodes: ", "nodes: Nodes::");
        write!(f, "Command::{text}")
    }
}

/// The sequence as the source of a test, for a preset of `zonal` or of this crate.
#[must_use]
pub fn as_source(preset: &str, shape: Shape, commands: &[Command]) -> String {
    let home = if preset == "TinyZonal" { "zonal_testkit" } else { "zonal" };
    let mut source = format!(
        "use {home}::preset::{preset};\n\
         use zonal_testkit::command::{{Ask, Command, Nodes}};\n\
         use zonal_testkit::probe::Probe;\n\
         use zonal_testkit::runner::run_commands;\n\
         use zonal_testkit::shape::Shape;\n\n\
         #[test]\nfn regression() {{\n    let commands = [\n"
    );
    for command in commands {
        // Writing to a string cannot fail.
        let _ = writeln!(source, "        {command},");
    }
    let _ = write!(
        source,
        "    ];\n    run_commands::<Probe, {preset}>(Shape::{shape:?}, &commands).unwrap();\n}}\n"
    );
    source
}
