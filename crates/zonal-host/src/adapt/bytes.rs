//! Owned pages as `Bytes`.

use crate::{Arena, OwnedPage};
use bytes::Bytes;
use zonal::policy::Policy;

/// Without copying: the page is freed with the last clone or slice of it.
///
/// ```
/// use bytes::Bytes;
/// use std::sync::Arc;
/// use zonal::Request;
/// use zonal_host::Arena;
/// let arena = Arc::new(Arena::builder().bytes(16 << 20).open()?);
/// let mut page = arena.alloc_owned(&Request::frame())?;
/// page[..5].copy_from_slice(b"hello");
/// let bytes = Bytes::from(page).slice(..5);
/// assert_eq!(bytes, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<S: Policy + 'static> From<OwnedPage<S>> for Bytes
where
    Arena<S>: Send + Sync,
{
    fn from(page: OwnedPage<S>) -> Self {
        Self::from_owner(page)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zonal::{Order, Request, ZoneId};

    #[test]
    fn the_last_slice_frees_the_page() {
        let arena = Arena::builder().bytes(16 << 20).cpus(1).owners(0).open().unwrap();
        let arena = Arc::new(arena);
        let allocated = || {
            arena.drain();
            let zone = arena.zone_info(ZoneId(0)).unwrap();
            zone.managed - zone.free
        };
        let order = Order::new(3).unwrap();
        let page = arena.alloc_owned(&Request::new(order).zero()).unwrap();
        let address = page.as_ptr();
        let bytes = Bytes::from(page);
        assert_eq!((bytes.as_ptr(), bytes.len()), (address, order.bytes()), "no copy");
        let slice = bytes.slice(100..200);
        drop(bytes);
        assert_eq!((slice.as_ref(), allocated()), (&[0; 100][..], 8));
        std::thread::spawn(move || drop(slice)).join().unwrap();
        assert_eq!(allocated(), 0);
    }
}
