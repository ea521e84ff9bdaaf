//! Commands from proptest.

use super::{Ask, Command, Nodes};
use proptest::prelude::*;

/// Mostly low orders, as in earnest.
fn orders() -> impl Strategy<Value = u8> {
    prop_oneof![8 => Just(0_u8), 6 => 1..4_u8, 3 => 4..9_u8, 1 => 9..11_u8]
}

fn nodes() -> impl Strategy<Value = Nodes> {
    prop_oneof![
        8 => Just(Nodes::Local),
        1 => (0..3_u8).prop_map(Nodes::Preferred),
        1 => (0..8_u8).prop_map(Nodes::Bind),
        1 => (0..8_u8).prop_map(Nodes::Interleave),
    ]
}

fn asks() -> impl Strategy<Value = Ask> {
    let migrate = prop_oneof![30 => 0..3_u8, 1 => 3..6_u8];
    let limit = prop_oneof![4 => Just(2_u8), 2 => Just(3_u8), 1 => 0..2_u8];
    let flags = prop_oneof![6 => Just(0_u8), 2 => Just(1_u8), 3 => 0..64_u8];
    (orders(), migrate, limit, flags, nodes()).prop_map(|(order, migrate, limit, flags, nodes)| {
        Ask { order, migrate, limit, flags, nodes }
    })
}

fn frames() -> impl Strategy<Value = Ask> {
    (asks(), 0..4_u8).prop_map(|(ask, zero)| if zero > 0 { Ask { order: 0, ..ask } } else { ask })
}

/// Frames in a row: mostly few.
fn counts() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 1..20_u16, 2 => 1..200_u16, 1 => 0..1200_u16]
}

fn below() -> impl Strategy<Value = u16> {
    prop_oneof![2 => Just(0_u16), 3 => 0..4096_u16]
}

/// One command.
pub fn strategy() -> impl Strategy<Value = Command> {
    let marks = prop_oneof![2 => Just(0_u16), 3 => 0..400_u16];
    prop_oneof![
        16 => asks().prop_map(Command::Alloc),
        14 => any::<u16>().prop_map(|nth| Command::Free { nth }),
        2 => (any::<u16>(), 0..11_u8).prop_map(|(frame, order)| Command::FreeAny { frame, order }),
        2 => (any::<u16>(), any::<u16>(), 0..11_u8)
            .prop_map(|(nth, inner, order)| Command::FreePart { nth, inner, order }),
        8 => (frames(), 0..700_u16).prop_map(|(ask, count)| Command::AllocBulk { ask, count }),
        8 => (any::<u16>(), 0..700_u16, any::<bool>())
            .prop_map(|(nth, count, twice)| Command::FreeBulk { nth, count, twice }),
        2 => (frames(), 0..40_u8).prop_map(|(ask, spare)| Command::Fill { ask, spare }),
        1 => Just(Command::FreeAll),
        1 => any::<u8>().prop_map(|cpu| Command::DrainCpu { cpu }),
        1 => Just(Command::DrainAll),
        4 => any::<u8>().prop_map(|cpu| Command::SwitchCpu { cpu }),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(cpu, on)| Command::Own { cpu, on }),
        1 => (any::<u8>(), marks, 0..50_u16)
            .prop_map(|(zone, min, step)| Command::SetWatermarks { zone, min, step }),
        1 => (any::<u8>(), 0..200_u16).prop_map(|(zone, frames)| Command::Boost { zone, frames }),
        2 => any::<u16>().prop_map(|nth| Command::Pledge { nth }),
        3 => (any::<u8>(), 0..40_u8).prop_map(|(nth, count)| Command::Online { nth, count }),
        1 => (any::<u8>(), 0..10_u8).prop_map(|(nth, count)| Command::Offline { nth, count }),
        4 => (frames(), counts(), 0..12_u8, below())
            .prop_map(|(ask, count, align, below)| Command::AllocPages { ask, count, align, below }),
        4 => (any::<u16>(), counts()).prop_map(|(nth, count)| Command::FreePages { nth, count }),
        3 => (any::<u16>(), counts()).prop_map(|(frame, count)| Command::AllocAt { frame, count }),
        3 => (any::<u16>(), counts()).prop_map(|(frame, count)| Command::Release { frame, count }),
    ]
}

/// A sequence of 1 to `most` commands.
pub fn commands(most: usize) -> impl Strategy<Value = Vec<Command>> {
    prop::collection::vec(strategy(), 1..=most)
}
