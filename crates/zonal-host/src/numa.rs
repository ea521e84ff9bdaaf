//! NUMA nodes: which there are, how far apart, which CPUs they have; binding memory to one.
//!
//! Where the kernel tells nothing there is one node with everything.
//!
//! ```
//! use zonal_host::numa::Topology;
//! let machine = Topology::read();
//! for node in machine.nodes() {
//!     println!("node {}: {} CPUs, distances {:?}", node.id, node.cpus.len(), node.distances);
//! }
//! assert!(machine.nodes().iter().any(|node| node.has_memory));
//! ```

use crate::errno::Errno;
use crate::region::{HUGE_PAGE, Region, RegionError};
use crate::sys::{Calls, Kernel};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use zonal::zonelist::{DistanceError, DistanceMatrix};
use zonal::{CpuId, MAX_NODES, NodeId};

/// A node of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its CPUs, by number.
    pub cpus: Vec<CpuId>,
    /// Whether it has memory.
    pub has_memory: bool,
    /// Distances to the nodes of the [`Topology`], in their order; 10 is local. Empty if the
    /// kernel does not say.
    pub distances: Vec<u8>,
}

/// The nodes of the machine. At least one has memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    nodes: Vec<Node>,
}

/// Numbers of a list as the kernel writes them: `0-3,8`.
pub(crate) fn numbers(list: &str) -> Vec<u32> {
    let part = |part: &str| -> Option<Range<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.trim().parse().ok()?;
        Some(first.trim().parse().ok()?..last.checked_add(1)?)
    };
    list.trim().split(',').filter_map(part).flatten().collect()
}

impl Topology {
    /// What the kernel says. Nodes from number [`MAX_NODES`] on are left out.
    #[must_use]
    pub fn read() -> Self {
        Self::read_from(Path::new("/sys/devices/system/node"))
    }

    /// The same from a directory laid out like `/sys/devices/system/node`.
    #[must_use]
    pub fn read_from(root: &Path) -> Self {
        let text = |name: String| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let online = numbers(&text("online".into()));
        let with_memory = numbers(&text("has_memory".into()));
        let node = |&number: &u32| {
            let row = text(format!("node{number}/distance"));
            let row: Vec<u8> = row.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            // A row has an entry for each online node.
            let known = online.iter().zip(row).filter(|(node, _)| (**node as usize) < MAX_NODES);
            Node {
                id: NodeId(number as u8),
                cpus: numbers(&text(format!("node{number}/cpulist")))
                    .into_iter()
                    .map(CpuId)
                    .collect(),
                has_memory: with_memory.contains(&number),
                distances: known.map(|(_, distance)| distance).collect(),
            }
        };
        let fitting = online.iter().filter(|&&number| (number as usize) < MAX_NODES);
        let nodes: Vec<Node> = fitting.map(node).collect();
        if nodes.iter().any(|node| node.has_memory) { Self { nodes } } else { Self::flat() }
    }

    /// One node with everything.
    #[must_use]
    pub fn flat() -> Self {
        let cpus = (0..crate::cpu::possible()).map(CpuId).collect();
        let distances = vec![zonal::zonelist::LOCAL_DISTANCE];
        Self { nodes: vec![Node { id: NodeId(0), cpus, has_memory: true, distances }] }
    }

    /// A machine made up for a test.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn from_nodes(nodes: Vec<Node>) -> Self {
        Self { nodes }
    }

    /// The nodes, by number.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The numbers of those with memory.
    pub fn with_memory(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(|node| node.has_memory).map(|node| node.id)
    }

    /// The node of a CPU; the first node for a CPU that none has.
    #[must_use]
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        let node = self.nodes.iter().find(|node| node.cpus.contains(&cpu));
        node.or(self.nodes.first()).map_or(NodeId(0), |node| node.id)
    }

    /// The distances as the allocator takes them; what the kernel does not say keeps the
    /// default.
    ///
    /// # Errors
    /// [`DistanceError`] if what the kernel says cannot be.
    pub fn distances(&self) -> Result<DistanceMatrix, DistanceError> {
        let mut matrix = DistanceMatrix::default();
        for from in &self.nodes {
            for (to, &distance) in self.nodes.iter().zip(&from.distances) {
                matrix.set(from.id, to.id, distance)?;
            }
        }
        Ok(matrix)
    }
}

/// How strictly memory keeps to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    /// From another node only when this one has no more.
    Preferred,
    /// From no other node: when this one has no more, the kernel ends the process.
    Strict,
}

// Linux's numbers of the modes, from its ABI.
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_BIND: libc::c_int = 2;

/// Takes the memory of a part of `region` that was not touched yet from `node`.
///
/// # Errors
/// [`NumaError::Part`] for bytes that are no whole frames of the region, or no whole huge pages where it
/// consists of those; [`NumaError::NoSuchNode`] if the node has no memory or may not be used;
/// [`NumaError::Os`] for what else the kernel objects to, a kernel without NUMA included.
pub fn bind(
    region: &Region,
    part: Range<usize>,
    node: NodeId,
    binding: Binding,
) -> Result<(), NumaError> {
    region.check(&part).map_err(NumaError::Part)?;
    if !is_whole(region.is_huge_pages(), &part) {
        let Range { start, end } = part;
        return Err(NumaError::Part(RegionError::BadPart { start, end, len: region.len() }));
    }
    let mode = match binding {
        Binding::Preferred => MPOL_PREFERRED,
        Binding::Strict => MPOL_BIND,
    };
    let (word, bit) = (usize::from(node.0) / 64, node.0 % 64);
    let mut mask = [0_u64; 4];
    mask[word] = 1 << bit;
    let at = region.base().as_ptr().wrapping_add(part.start);
    let bound = Kernel::mbind(at, part.len(), mode, &mask);
    bound.map_err(|errno| match errno {
        Errno::INVALID => NumaError::NoSuchNode { node },
        errno => NumaError::Os { errno },
    })
}

/// Whether the kernel can bind a part of whole frames: not inside of a huge page. (It says the same of that
/// as of a node that does not exist.)
const fn is_whole(huge_pages: bool, part: &Range<usize>) -> bool {
    !huge_pages || (part.start | part.end).is_multiple_of(HUGE_PAGE)
}

/// Has memory of `region` that was not touched yet come from where the kernel likes, whatever it
/// was bound to.
///
/// # Errors
/// [`NumaError::Os`] if the kernel refuses.
pub(crate) fn unbind(region: &Region) -> Result<(), NumaError> {
    let unbound = Kernel::mbind(region.base().as_ptr(), region.len(), MPOL_DEFAULT, &[0]);
    unbound.map_err(|errno| NumaError::Os { errno })
}

/// Why memory could not be bound to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NumaError {
    /// The part is not in the region, or no whole frames or huge pages of it.
    Part(RegionError),
    /// The node does not exist, has no memory, or is not for this process.
    NoSuchNode {
        /// The node wanted.
        node: NodeId,
    },
    /// The kernel refused for another reason.
    Os {
        /// What it said.
        errno: Errno,
    },
}

impl fmt::Display for NumaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(error) => error.fmt(f),
            Self::NoSuchNode { node } => {
                write!(f, "node {node} has no memory that this process may use")
            }
            Self::Os { errno } => write!(f, "the kernel does not bind memory to nodes: {errno}"),
        }
    }
}

impl std::error::Error for NumaError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn lists() {
        assert_eq!(numbers("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(numbers("5"), [5]);
        assert!(numbers("").is_empty() && numbers("\n").is_empty());
        assert_eq!(numbers("x,2,3-y,4294967295,1"), [2, 1], "what makes no sense is left out");
    }

    #[test]
    fn a_machine_with_odd_nodes() {
        let root = std::env::temp_dir().join(format!("zonal-numa-{}", std::process::id()));
        let file = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        // Node 2 has CPUs only, node 16 is beyond what the allocator knows.
        file("online", "0,2-3,16\n");
        file("has_memory", "0,3,16\n");
        for (node, cpus, row) in [
            (0, "0-1,4", "10 12 20 30"),
            (2, "2", "12 10 22 30"),
            (3, "", "20 22 10 30"),
            (16, "3", "30 30 30 10"),
        ] {
            file(&format!("node{node}/cpulist"), cpus);
            file(&format!("node{node}/distance"), row);
        }
        let machine = Topology::read_from(&root);
        fs::remove_dir_all(&root).unwrap();

        assert!(machine.nodes().iter().map(|node| node.id.0).eq([0, 2, 3]));
        assert!(machine.with_memory().map(|node| node.0).eq([0, 3]));
        let nodes = [(0, 0), (4, 0), (2, 2), (3, 0), (99, 0)];
        for (cpu, node) in nodes {
            assert_eq!(machine.node_of(CpuId(cpu)), NodeId(node), "CPU {cpu}");
        }
        let distances = machine.distances().unwrap();
        assert_eq!(distances.get(NodeId(2), NodeId(3)), 22);
        assert_eq!(distances.get(NodeId(3), NodeId(0)), 20);
        assert_eq!(distances.get(NodeId(0), NodeId(1)), 20, "not there: the default");
    }

    #[test]
    fn no_nodes_is_one_node() {
        let machine = Topology::read_from(Path::new("/nowhere"));
        assert_eq!(machine, Topology::flat());
        assert_eq!(machine.with_memory().count(), 1);
        assert_eq!(machine.distances(), Ok(DistanceMatrix::default()));
    }

    #[test]
    fn huge_pages_are_bound_whole() {
        let parts = [0..HUGE_PAGE, HUGE_PAGE..3 * HUGE_PAGE, 4096..HUGE_PAGE, 0..HUGE_PAGE + 4096];
        assert_eq!(parts.clone().map(|part| is_whole(true, &part)), [true, true, false, false]);
        assert_eq!(parts.map(|part| is_whole(false, &part)), [true; 4]);
        let error = RegionError::BadPart { start: 4096, end: HUGE_PAGE, len: 2 * HUGE_PAGE };
        let told = "bytes 4096 to 2097152 are no whole huge pages of a region of 4194304 bytes";
        assert_eq!(NumaError::Part(error).to_string(), told);
    }

    #[test]
    fn binding() {
        let region = Region::zeroed(1 << 20).unwrap();
        let node = Topology::read().with_memory().next().unwrap();
        for binding in [Binding::Preferred, Binding::Strict] {
            match bind(&region, 0..1 << 20, node, binding) {
                Ok(()) => {
                    let error = bind(&region, 0..1 << 20, NodeId(200), binding).unwrap_err();
                    assert_eq!(error, NumaError::NoSuchNode { node: NodeId(200) });
                    assert!(error.to_string().contains("node 200 has no memory"));
                    assert_eq!(unbind(&region), Ok(()));
                }
                // A kernel without NUMA, or a filter in front of it.
                Err(error) => assert!(matches!(error, NumaError::Os { .. }), "{error}"),
            }
        }
        for part in [0..2 << 20, 4096..4096, 1..4096, 0..4097] {
            let error = bind(&region, part.clone(), node, Binding::Preferred).unwrap_err();
            assert!(matches!(error, NumaError::Part(RegionError::BadPart { .. })), "{part:?}");
        }
    }
}
