//! Files that are open at once: as many as the system lets a process have.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::error::IobenchError;

/// Descriptors that a process has besides, at most.
const BESIDES: u64 = 32;

/// Raises the soft limit as far as it may be, if that is needed to have `files` open.
///
/// # Errors
///
/// [`IobenchError::OpenFiles`] if the limit is lower even so.
pub(crate) fn need(files: u64) -> Result<(), IobenchError> {
    let is_less = |limit: Option<u64>| limit.filter(|most| *most < files.saturating_add(BESIDES));
    let mut limit = getrlimit(Resource::Nofile);
    if is_less(limit.current).is_some() {
        limit.current = limit.maximum;
        // Else it stays as it is, which is seen below.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    match is_less(getrlimit(Resource::Nofile).current) {
        Some(limit) => Err(IobenchError::OpenFiles { files, limit }),
        None => Ok(()),
    }
}
