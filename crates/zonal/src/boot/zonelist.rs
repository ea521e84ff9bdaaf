//! Zonelists: in which order a request that starts at a node tries the zones.
//!
//! ```
//! use zonal::NodeId;
//! use zonal::zonelist::DistanceMatrix;
//! // Two sockets, as a firmware table would give them.
//! let distances = DistanceMatrix::from_table(2, &[10, 21, 21, 10]).unwrap();
//! assert_eq!(distances.get(NodeId(0), NodeId(1)), 21);
//! assert!(DistanceMatrix::from_table(2, &[10, 21, 21, 11]).is_err());
//! ```

use crate::boot::plan::ZoneSpec;
use crate::types::units::{NodeId, ZoneId};
use crate::types::zone_type::ZoneType;
use core::fmt;

/// How many NUMA nodes there may be.
pub const MAX_NODES: usize = 16;
/// How many zone instances there may be over all nodes.
pub const MAX_ZONES: usize = 64;
/// The distance of a node to itself.
pub const LOCAL_DISTANCE: u8 = 10;
/// The distance between nodes of which nothing else is known.
pub const REMOTE_DISTANCE: u8 = 20;

/// How far the nodes are apart, in the units of ACPI's SLIT: 10 is local, 20 twice as far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DistanceMatrix([[u8; MAX_NODES]; MAX_NODES]);

impl Default for DistanceMatrix {
    /// 10 on the diagonal, 20 everywhere else.
    fn default() -> Self {
        let mut rows = [[REMOTE_DISTANCE; MAX_NODES]; MAX_NODES];
        for (node, row) in rows.iter_mut().enumerate() {
            row[node] = LOCAL_DISTANCE;
        }
        Self(rows)
    }
}

impl DistanceMatrix {
    /// All zero.
    pub(crate) const NOTHING: Self = Self([[0; MAX_NODES]; MAX_NODES]);

    /// The distances between the first `nodes` nodes, row by row; the rest keep the default.
    /// The two directions between a pair may differ.
    ///
    /// # Errors
    /// [`DistanceError`] if there are too many nodes, the table is not `nodes` × `nodes`, a
    /// node is not 10 from itself, or two nodes are closer than that.
    pub fn from_table(nodes: usize, table: &[u8]) -> Result<Self, DistanceError> {
        if nodes > MAX_NODES {
            return Err(DistanceError::TooManyNodes { nodes });
        }
        if table.len() != nodes * nodes {
            return Err(DistanceError::WrongSize { nodes, entries: table.len() });
        }
        let mut matrix = Self::default();
        for (at, &distance) in table.iter().enumerate() {
            let (from, to) = (NodeId((at / nodes) as u8), NodeId((at % nodes) as u8));
            matrix.set(from, to, distance)?;
        }
        Ok(matrix)
    }

    /// Changes the distance from one node to another (this direction only).
    ///
    /// # Errors
    /// [`DistanceError`] if a node is beyond [`MAX_NODES`] or the distance is impossible; then
    /// nothing is changed.
    pub const fn set(
        &mut self,
        from: NodeId,
        to: NodeId,
        distance: u8,
    ) -> Result<(), DistanceError> {
        if from.0 as usize >= MAX_NODES {
            return Err(DistanceError::NoSuchNode { node: from });
        }
        if to.0 as usize >= MAX_NODES {
            return Err(DistanceError::NoSuchNode { node: to });
        }
        if from.0 == to.0 && distance != LOCAL_DISTANCE {
            return Err(DistanceError::NotLocal { node: from, distance });
        }
        if distance < LOCAL_DISTANCE {
            return Err(DistanceError::TooClose { from, to, distance });
        }
        self.0[from.0 as usize][to.0 as usize] = distance;
        Ok(())
    }

    /// How far `to` is from `from`; 255 for a node beyond [`MAX_NODES`].
    #[must_use]
    pub const fn get(&self, from: NodeId, to: NodeId) -> u8 {
        if from.0 as usize >= MAX_NODES || to.0 as usize >= MAX_NODES {
            return u8::MAX;
        }
        self.0[from.0 as usize][to.0 as usize]
    }

    /// All nodes, nearest to `from` first (itself before any other); among equals the next
    /// higher number first, wrapping round, so that the nodes do not all fall back on node 0.
    fn by_distance(&self, from: NodeId) -> [NodeId; MAX_NODES] {
        let mut nodes: [NodeId; MAX_NODES] = core::array::from_fn(|n| NodeId(n as u8));
        nodes.sort_unstable_by_key(|&to| {
            (self.get(from, to), to.0.wrapping_sub(from.0) % MAX_NODES as u8)
        });
        nodes
    }
}

/// What is wrong with a distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DistanceError {
    /// The table is for more than [`MAX_NODES`] nodes.
    TooManyNodes {
        /// Nodes it is for.
        nodes: usize,
    },
    /// The table does not have one entry for each pair of nodes.
    WrongSize {
        /// Nodes it is for.
        nodes: usize,
        /// Entries it has.
        entries: usize,
    },
    /// The node is beyond [`MAX_NODES`].
    NoSuchNode {
        /// The node.
        node: NodeId,
    },
    /// A node is not [`LOCAL_DISTANCE`] from itself.
    NotLocal {
        /// The node.
        node: NodeId,
        /// Its distance from itself.
        distance: u8,
    },
    /// Another node is closer than the node itself.
    TooClose {
        /// Seen from this node.
        from: NodeId,
        /// The node that is too close.
        to: NodeId,
        /// The distance given.
        distance: u8,
    },
}

impl fmt::Display for DistanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooManyNodes { nodes } => {
                write!(f, "distances of {nodes} nodes given, at most {MAX_NODES} are possible")
            }
            Self::WrongSize { nodes, entries } => write!(
                f,
                "the distances of {nodes} nodes take {nodes} x {nodes} entries, {entries} given"
            ),
            Self::NoSuchNode { node } => {
                write!(f, "there is no node {node}: nodes go from 0 to {}", MAX_NODES - 1)
            }
            Self::NotLocal { node, distance } => write!(
                f,
                "node {node} is {distance} from itself, but that is {LOCAL_DISTANCE} by definition"
            ),
            Self::TooClose { from, to, distance } => write!(
                f,
                "node {to} is {distance} from node {from}, closer than a node is to itself \
                 ({LOCAL_DISTANCE})"
            ),
        }
    }
}

impl core::error::Error for DistanceError {}

/// What is kept together in a zonelist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ZonelistOrder {
    /// Nodes: all zones of the nearest node from the highest type to the lowest, then those
    /// of the next node. Keeps memory local.
    #[default]
    Node,
    /// Zone types: the highest type on all nodes, nearest first, then the next lower type.
    /// Spares the low zones.
    Zone,
}

/// The zones that a request starting at one node tries, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zonelist {
    zones: [ZoneId; MAX_ZONES],
    len: u8,
}

impl Zonelist {
    /// A list without zones.
    pub const EMPTY: Self = Self { zones: [ZoneId(0); MAX_ZONES], len: 0 };

    /// The list of `node`, which need not have memory of its own. Instances of the same type
    /// and node stand together, in the order of `zones`; zones beyond [`MAX_ZONES`] are left out.
    #[must_use]
    pub fn build(
        node: NodeId,
        order: ZonelistOrder,
        distances: &DistanceMatrix,
        zones: &[ZoneSpec],
    ) -> Self {
        let mut list = Self::EMPTY;
        let nodes = distances.by_distance(node);
        let types = ZoneType::ALL.into_iter().rev();
        match order {
            ZonelistOrder::Node => {
                for node in nodes {
                    types.clone().for_each(|ty| list.push_all(zones, node, ty));
                }
            }
            ZonelistOrder::Zone => {
                for ty in types {
                    nodes.into_iter().for_each(|node| list.push_all(zones, node, ty));
                }
            }
        }
        list
    }

    fn push_all(&mut self, zones: &[ZoneSpec], node: NodeId, ty: ZoneType) {
        for zone in zones.iter().filter(|z| z.node == node && z.zone_type == ty) {
            if usize::from(self.len) < MAX_ZONES {
                self.zones[usize::from(self.len)] = zone.id;
                self.len += 1;
            }
        }
    }

    /// The zones, first choice first.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[ZoneId] {
        &self.zones[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    /// Zones 0, 1, ... of these nodes and types.
    fn zones(of: &[(u8, ZoneType)]) -> Vec<ZoneSpec> {
        let spec = |(id, &(node, zone_type)): (usize, &(u8, ZoneType))| ZoneSpec {
            id: ZoneId(id as u8),
            node: NodeId(node),
            zone_type,
            ..ZoneSpec::default()
        };
        of.iter().enumerate().map(spec).collect()
    }

    fn list(node: u8, order: ZonelistOrder, d: &DistanceMatrix, zones: &[ZoneSpec]) -> Vec<u8> {
        let list = Zonelist::build(NodeId(node), order, d, zones);
        list.as_slice().iter().map(|z| z.0).collect()
    }

    use ZoneType::{Dma, Dma32, Movable, Normal};
    use ZonelistOrder::{Node, Zone};

    #[test]
    fn one_node() {
        let d = DistanceMatrix::default();
        let zones = zones(&[(0, Dma), (0, Dma32), (0, Normal), (0, Normal), (0, Movable)]);
        for order in [Node, Zone] {
            assert_eq!(list(0, order, &d, &zones), [4, 2, 3, 1, 0]);
        }
        assert_eq!(list(0, Node, &d, &[]), [0_u8; 0]);
    }

    #[test]
    fn two_nodes() {
        let d = DistanceMatrix::default();
        let zones = zones(&[(0, Dma32), (0, Normal), (1, Normal), (1, Movable)]);
        assert_eq!(list(0, Node, &d, &zones), [1, 0, 3, 2]);
        assert_eq!(list(0, Zone, &d, &zones), [3, 1, 2, 0]);
        assert_eq!(list(1, Node, &d, &zones), [3, 2, 1, 0]);
        assert_eq!(list(1, Zone, &d, &zones), [3, 2, 1, 0]);
    }

    #[test]
    fn four_nodes_at_equal_distance_take_turns() {
        let d = DistanceMatrix::default();
        let zones = zones(&[(0, Normal), (1, Normal), (2, Normal), (3, Normal)]);
        for order in [Node, Zone] {
            assert_eq!(list(0, order, &d, &zones), [0, 1, 2, 3]);
            assert_eq!(list(1, order, &d, &zones), [1, 2, 3, 0]);
            assert_eq!(list(2, order, &d, &zones), [2, 3, 0, 1]);
            assert_eq!(list(3, order, &d, &zones), [3, 0, 1, 2]);
        }
        // A node without memory falls back on its neighbours.
        assert_eq!(list(7, Node, &d, &zones), [0, 1, 2, 3]);
    }

    #[test]
    fn four_nodes_in_a_ring() {
        #[rustfmt::skip]
        let d = DistanceMatrix::from_table(4, &[
            10, 20, 30, 20,
            20, 10, 20, 30,
            30, 20, 10, 20,
            20, 30, 20, 10,
        ]).unwrap();
        let zones = zones(&[(0, Normal), (1, Normal), (2, Normal), (3, Normal)]);
        assert_eq!(list(0, Node, &d, &zones), [0, 1, 3, 2]);
        assert_eq!(list(3, Node, &d, &zones), [3, 0, 2, 1]);
    }

    #[test]
    fn the_two_directions_may_differ() {
        let mut d = DistanceMatrix::default();
        d.set(NodeId(0), NodeId(1), 40).unwrap();
        let zones = zones(&[(0, Normal), (1, Normal), (2, Normal)]);
        assert_eq!(list(0, Node, &d, &zones), [0, 2, 1]);
        assert_eq!(list(1, Node, &d, &zones), [1, 2, 0]);
        d.set(NodeId(1), NodeId(2), 40).unwrap();
        assert_eq!(list(1, Node, &d, &zones), [1, 0, 2]);
    }

    #[test]
    fn a_node_comes_first_even_if_another_is_as_near() {
        let d = DistanceMatrix::from_table(2, &[10, 10, 10, 10]).unwrap();
        let zones = zones(&[(0, Normal), (1, Normal)]);
        assert_eq!(list(1, Node, &d, &zones), [1, 0]);
    }

    #[test]
    fn bad_distances_are_refused() {
        let n = NodeId;
        let table: [(usize, &[u8], DistanceError, &str); 4] = [
            (17, &[], DistanceError::TooManyNodes { nodes: 17 }, "17 nodes given, at most 16"),
            (
                2,
                &[10, 20, 20],
                DistanceError::WrongSize { nodes: 2, entries: 3 },
                "2 x 2 entries, 3 given",
            ),
            (
                2,
                &[10, 20, 20, 11],
                DistanceError::NotLocal { node: n(1), distance: 11 },
                "node 1 is 11 from itself",
            ),
            (
                2,
                &[10, 9, 20, 10],
                DistanceError::TooClose { from: n(0), to: n(1), distance: 9 },
                "node 1 is 9 from node 0",
            ),
        ];
        for (nodes, distances, error, message) in table {
            assert_eq!(DistanceMatrix::from_table(nodes, distances), Err(error));
            assert!(error.to_string().contains(message), "{error}");
        }
        let mut d = DistanceMatrix::default();
        let error = d.set(n(0), n(16), 20).unwrap_err();
        assert_eq!(error, DistanceError::NoSuchNode { node: n(16) });
        assert!(error.to_string().contains("no node 16"), "{error}");
        assert!(d.set(n(16), n(0), 20).is_err());
        assert_eq!(d, DistanceMatrix::default());
        assert_eq!(d.get(n(16), n(0)), 255);
    }
}
