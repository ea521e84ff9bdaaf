//! The inodes that the kernel knows: an `O_PATH` descriptor each, found by number or by device and inode.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use fuser::Errno;
use parking_lot::Mutex;
use rustix::fs::{Stat, fstat};
use zonal_cache::evict::Evict;

use crate::contents::Cached;
use crate::shared::{Answer, os};

/// The root, as the kernel calls it.
pub(crate) const ROOT: u64 = 1;
/// The statistics file.
pub(crate) const STATISTICS: u64 = 1 << 62;
/// Inodes whose own number another has, or that is one of those above, have numbers from here on.
const OTHERS: u64 = STATISTICS + 1;

/// An inode.
pub(crate) struct Node<E: Evict> {
    pub(crate) number: u64,
    pub(crate) fd: OwnedFd,
    pub(crate) cached: Mutex<Cached<E>>,
}

impl<E: Evict> Node<E> {
    fn new(number: u64, fd: OwnedFd) -> Self {
        Self { number, fd, cached: Mutex::new(Cached::default()) }
    }

    /// A name for calls that take no `O_PATH` descriptor.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    pub(crate) fn stat(&self) -> Answer<Stat> {
        fstat(&self.fd).map_err(os)
    }
}

/// Device and inode.
type Id = (u64, u64);

pub(crate) const fn id_of(stat: &Stat) -> Id {
    (stat.st_dev, stat.st_ino)
}

struct Known<E: Evict> {
    node: Arc<Node<E>>,
    id: Id,
    /// How often the kernel was told of it and has not forgotten it.
    lookups: u64,
}

struct Table<E: Evict> {
    by_number: HashMap<u64, Known<E>>,
    by_id: HashMap<Id, u64>,
    next: u64,
}

/// All inodes that the kernel knows.
pub(crate) struct Nodes<E: Evict> {
    table: Mutex<Table<E>>,
    device: u64,
}

impl<E: Evict> Nodes<E> {
    /// With the root, which is never forgotten.
    pub(crate) fn new(root: OwnedFd) -> Answer<Self> {
        let node = Arc::new(Node::new(ROOT, root));
        let id = id_of(&node.stat()?);
        let known = Known { node, id, lookups: 1 };
        let table = Table {
            by_number: HashMap::from([(ROOT, known)]),
            by_id: HashMap::from([(id, ROOT)]),
            next: OTHERS,
        };
        Ok(Self { table: Mutex::new(table), device: id.0 })
    }

    /// The inode with a number.
    pub(crate) fn get(&self, number: u64) -> Answer<Arc<Node<E>>> {
        let table = self.table.lock();
        table.by_number.get(&number).map(|known| known.node.clone()).ok_or(Errno::ESTALE)
    }

    /// The inode of a descriptor, which the kernel is told of now.
    pub(crate) fn adopt(&self, fd: OwnedFd) -> Answer<(Arc<Node<E>>, Stat)> {
        let stat = fstat(&fd).map_err(os)?;
        let id = id_of(&stat);
        let table = &mut *self.table.lock();
        // Its number is not another's meanwhile: a descriptor of it is open.
        if let Some(known) = table.by_id.get(&id).and_then(|it| table.by_number.get_mut(it)) {
            known.lookups += 1;
            return Ok((known.node.clone(), stat));
        }
        let own = id.0 == self.device && id.1 > ROOT && id.1 < STATISTICS;
        let number = if own && !table.by_number.contains_key(&id.1) {
            id.1
        } else {
            table.next += 1;
            table.next
        };
        let node = Arc::new(Node::new(number, fd));
        table.by_number.insert(number, Known { node: node.clone(), id, lookups: 1 });
        table.by_id.insert(id, number);
        Ok((node, stat))
    }

    /// The kernel has forgotten it `count` times; the inode, if it knows it no more.
    pub(crate) fn forget(&self, number: u64, count: u64) -> Option<Arc<Node<E>>> {
        let mut table = self.table.lock();
        let known = table.by_number.get_mut(&number).filter(|_| number != ROOT)?;
        known.lookups = known.lookups.saturating_sub(count);
        (known.lookups == 0).then(|| known.node.clone())
    }

    /// Takes an inode out that the kernel does not know any more and that has no data here. False if it is to be asked
    /// for again: it has data, or another thread is at them, which is not waited for with the table locked.
    pub(crate) fn remove(&self, number: u64) -> bool {
        let mut table = self.table.lock();
        let Some(known) = table.by_number.get(&number).filter(|known| known.lookups == 0) else {
            return true;
        };
        let id = known.id;
        let gone = known.node.cached.try_lock().is_some_and(|cached| !cached.has_content());
        if gone {
            table.by_number.remove(&number);
            table.by_id.remove(&id);
        }
        gone
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Node<E>>> {
        self.table.lock().by_number.values().map(|known| known.node.clone()).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().by_number.len()
    }
}
