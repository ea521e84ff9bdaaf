//! Commands from bytes, for a fuzzer: every input means something.

use super::{Ask, Command, Nodes};
use crate::shape::Shape;

/// Worlds in which a command takes little time; and one with memory that comes later.
const SHAPES: [Shape; Shape::SMALL.len() + 1] = {
    let mut shapes = [Shape::Later; Shape::SMALL.len() + 1];
    let (small, _) = shapes.split_at_mut(Shape::SMALL.len());
    small.copy_from_slice(&Shape::SMALL);
    shapes
};

/// Reads numbers from bytes; zeros when they have run out.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Two bytes. Most requests are plain, as are most of those that are made in earnest.
    fn ask(&mut self) -> Ask {
        let (what, how) = (self.byte(), self.byte());
        let order = match what >> 4 {
            order @ 0..=10 => order,
            _ => 0,
        };
        let migrate = match what & 0xf {
            migrate @ 0..=5 => migrate,
            other => other % 3,
        };
        let limit = 3 - (how & 3);
        let (flags, nodes) = match how >> 2 & 3 {
            0 => (0, Nodes::Local),
            1 => (how >> 4 & 7, Nodes::Local),
            2 => (self.byte(), Nodes::Local),
            _ => {
                let node = self.byte();
                let nodes = match node >> 6 {
                    0 => Nodes::Preferred(node & 3),
                    1 => Nodes::Bind(node & 15),
                    2 => Nodes::Interleave(node & 15),
                    _ => Nodes::Local,
                };
                (how >> 4 << 2 & 0x38, nodes)
            }
        };
        Ask { order, migrate, limit, flags, nodes }
    }

    fn pages(&mut self, which: u8) -> Command {
        let (at, count) = (self.word(), u16::from(self.byte()));
        match which {
            0 => {
                let (ask, align) = (self.ask(), self.byte());
                Command::AllocPages { ask, count: count * 5, align, below: at & 4095 }
            }
            1 => Command::FreePages { nth: at, count },
            2 => Command::AllocAt { frame: at, count },
            _ => Command::Release { frame: at, count },
        }
    }

    fn command(&mut self) -> Command {
        match self.byte() % 32 {
            0..=6 => Command::Alloc(self.ask()),
            7..=12 => Command::Free { nth: self.word() },
            13 => Command::FreeAny { frame: self.word(), order: self.byte() },
            14 => Command::FreePart { nth: self.word(), inner: self.word(), order: self.byte() },
            15..=17 => {
                let ask = self.ask();
                Command::AllocBulk { ask, count: u16::from(self.byte()) * 3 }
            }
            18..=20 => {
                let (nth, count) = (self.word(), self.byte());
                Command::FreeBulk { nth, count: u16::from(count) * 3, twice: count & 1 == 1 }
            }
            21 => Command::Fill { ask: self.ask(), spare: self.byte() & 31 },
            22 => Command::FreeAll,
            23 => Command::DrainCpu { cpu: self.byte() },
            24 => Command::DrainAll,
            25 | 26 => Command::SwitchCpu { cpu: self.byte() },
            27 => {
                let cpu = self.byte();
                Command::Own { cpu: cpu >> 1, on: cpu & 1 == 1 }
            }
            28 => {
                let (zone, min, step) = (self.byte(), self.byte(), self.byte());
                Command::SetWatermarks { zone, min: u16::from(min), step: u16::from(step) }
            }
            29 => Command::Boost { zone: self.byte(), frames: u16::from(self.byte()) },
            30 => Command::Pledge { nth: self.word() },
            _ => {
                // Mostly it comes: from memory that is not there nothing can be had.
                let (nth, what) = (self.byte(), self.byte());
                let count = what & 63;
                match what >> 6 {
                    3 if count >= 60 => self.pages(count - 60),
                    3 => Command::Offline { nth, count },
                    _ => Command::Online { nth, count },
                }
            }
        }
    }
}

/// Decodes a shape, one of the small ones or [`Shape::Later`], and up to `most` commands.
///
/// ```
/// use zonal_testkit::command::{Command, from_bytes};
/// use zonal_testkit::shape::Shape;
/// let (shape, commands) = from_bytes(&[1, 24, 22], 100);
/// assert_eq!(shape, Shape::Flat);
/// assert_eq!(commands, [Command::DrainAll, Command::FreeAll]);
/// let (shape, commands) = from_bytes(&[10, 31, 8, 5, 31, 9, 0xc2], 100);
/// assert_eq!(shape, Shape::Later);
/// let expected =
///     [Command::Online { nth: 8, count: 5 }, Command::Offline { nth: 9, count: 2 }];
/// assert_eq!(commands, expected);
/// ```
#[must_use]
pub fn from_bytes(bytes: &[u8], most: usize) -> (Shape, Vec<Command>) {
    let mut reader = Reader { bytes };
    let shape = SHAPES[usize::from(reader.byte()) % SHAPES.len()];
    let mut commands = Vec::new();
    while !reader.bytes.is_empty() && commands.len() < most {
        commands.push(reader.command());
    }
    (shape, commands)
}
