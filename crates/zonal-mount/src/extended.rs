//! Extended attributes: those of the file below.

use std::ffi::OsStr;

use fuser::Errno;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use zonal_cache::evict::Evict;

use crate::nodes::{Node, STATISTICS};
use crate::shared::{Answer, Shared, os};
use std::sync::Arc;

/// What was asked for: the bytes, or how many they are.
pub(crate) enum Size {
    Bytes(Vec<u8>),
    Count(u32),
}

/// The most that Linux has for an attribute, and for a list of names.
const MOST: usize = 64 << 10;

impl<E: Evict> Shared<E> {
    fn with_extended(&self, number: u64) -> Answer<Arc<Node<E>>> {
        if number == STATISTICS { Err(Errno::EOPNOTSUPP) } else { self.nodes.get(number) }
    }

    /// The value of an attribute, or without `name` the list of names; its size, if `size` is 0.
    pub(crate) fn extended(&self, number: u64, name: Option<&OsStr>, size: u32) -> Answer<Size> {
        let node = self.with_extended(number)?;
        let mut bytes = vec![0; MOST];
        let got = match name {
            Some(name) => getxattr(node.path(), name, &mut *bytes),
            None => listxattr(node.path(), &mut *bytes),
        };
        bytes.truncate(got.map_err(os)?);
        match size as usize {
            0 => Ok(Size::Count(bytes.len() as u32)),
            size if size < bytes.len() => Err(Errno::ERANGE),
            _ => Ok(Size::Bytes(bytes)),
        }
    }

    pub(crate) fn set_extended(
        &self,
        number: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Answer<()> {
        let node = self.with_extended(number)?;
        let flags = XattrFlags::from_bits_retain(flags as u32);
        setxattr(node.path(), name, value, flags).map_err(os)
    }

    pub(crate) fn remove_extended(&self, number: u64, name: &OsStr) -> Answer<()> {
        removexattr(self.with_extended(number)?.path(), name).map_err(os)
    }
}
