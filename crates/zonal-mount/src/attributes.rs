//! What files look like: as the file below says, but for what is not written back yet.

use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, TimeOrNow};
use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmod, chownat,
    utimensat,
};
use zonal_cache::evict::Evict;

use crate::contents::{Contents, timespec};
use crate::nodes::{Node, STATISTICS};
use crate::shared::{Answer, Shared, os, told};

/// How long the kernel may keep what it was told of names and attributes.
pub(crate) const TTL: Duration = Duration::from_secs(1);
/// Inodes are told apart by number: a descriptor keeps it from being another's.
pub(crate) const GENERATION: Generation = Generation(0);

/// What of a file is to change.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<TimeOrNow>,
    pub(crate) modified: Option<TimeOrNow>,
}

pub(crate) fn kind_of(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Of;
    match kind {
        Of::Directory => FileType::Directory,
        Of::Symlink => FileType::Symlink,
        Of::Fifo => FileType::NamedPipe,
        Of::Socket => FileType::Socket,
        Of::CharacterDevice => FileType::CharDevice,
        Of::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(seconds: i64, nanos: u64) -> SystemTime {
    let base = SystemTime::UNIX_EPOCH;
    let nanos = Duration::from_nanos(nanos);
    if let Ok(seconds) = u64::try_from(seconds) {
        base + Duration::from_secs(seconds) + nanos
    } else {
        base - Duration::from_secs(seconds.unsigned_abs()) + nanos
    }
}

/// The attributes of an inode below.
fn below(number: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind_of(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

impl<E: Evict> Shared<E> {
    /// What an inode looks like.
    pub(crate) fn attr(node: &Node<E>) -> Answer<FileAttr> {
        // The file below is asked last: what leaves meanwhile is there then.
        let content = Contents::peek(node);
        let here = content.map(|content| {
            (content.file.len(), content.file.unwritten_pages() as u64 * 8, content.times())
        });
        let mut attr = below(node.number, &node.stat()?);
        if let Some((size, unwritten, times)) = here {
            attr.size = size;
            attr.blocks = attr.blocks.max((attr.blocks + unwritten).min(size.div_ceil(512)));
            attr.mtime = times.modified.unwrap_or(attr.mtime);
            attr.ctime = times.changed.map_or(attr.ctime, |at| attr.ctime.max(at));
        }
        Ok(attr)
    }

    pub(crate) fn get_attr(&self, number: u64) -> Answer<FileAttr> {
        if number == STATISTICS {
            return Ok(self.statistics_attr());
        }
        Self::attr(&*self.nodes.get(number)?)
    }

    pub(crate) fn set_attr(&self, number: u64, change: &Change) -> Answer<FileAttr> {
        if number == STATISTICS {
            return Err(Errno::EPERM);
        }
        let node = self.nodes.get(number)?;
        if let Some(size) = change.size {
            let content = self.contents.get(&node, false, true)?;
            let done = content.file.truncate(size).map_err(|error| told(&error));
            if done.is_ok() {
                content.set_changed();
            }
            drop(content);
            self.contents.queue(&node);
            done?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            chownat(&node.fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(os)?;
        }
        if let Some(mode) = change.mode {
            chmod(node.path(), Mode::from_raw_mode(mode & 0o7777)).map_err(os)?;
        }
        Self::set_times(&node, change)?;
        Self::attr(&node)
    }

    fn set_times(node: &Node<E>, change: &Change) -> Answer<()> {
        if change.accessed.is_none() && change.modified.is_none() {
            return Ok(());
        }
        let at = |time: &Option<TimeOrNow>| match time {
            None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Some(TimeOrNow::SpecificTime(at)) => timespec(*at),
        };
        let times = Timestamps {
            last_access: at(&change.accessed),
            last_modification: at(&change.modified),
        };
        // Before the file below has the new time: data that leave meanwhile would give it theirs.
        let content = Contents::peek(node);
        utimensat(&node.fd, "", &times, AtFlags::EMPTY_PATH).map_err(os)?;
        // What is written back later does not change it.
        if let (Some(modified), Some(content)) = (&change.modified, content) {
            match modified {
                TimeOrNow::Now => content.set_changed(),
                TimeOrNow::SpecificTime(at) => content.set_modified(*at),
            }
        }
        Ok(())
    }

    /// A write by one who may not keep these bits has happened.
    pub(crate) fn clear_set_id(node: &Node<E>) -> Answer<()> {
        let mode = node.stat()?.st_mode;
        // Without execution by the group the second means mandatory locks.
        let bits = if mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
        if mode & bits == 0 {
            return Ok(());
        }
        chmod(node.path(), Mode::from_raw_mode(mode & 0o7777 & !bits)).map_err(os)
    }
}
