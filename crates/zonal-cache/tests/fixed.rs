//! A store whose length is fixed, as a block device's: what would change it is refused, and all else goes on.

use std::sync::Arc;
use zonal_cache::store::{Store, StoreError};
use zonal_cache::{Cache, CacheError, CacheFile, FaultyStore, MemoryStore, S3Fifo};

const PAGE: usize = 4096;
/// No whole number of pages: devices have sectors of 512 bytes.
const LEN: usize = 40 * PAGE + 512;

/// As [`MemoryStore`], but that it is as long as it is, and says so. What it is asked for in vain has its error, as of a
/// device.
struct Device(MemoryStore);

impl Device {
    fn of_sevens() -> Arc<Self> {
        Arc::new(Self(MemoryStore::from(vec![7; LEN])))
    }
}

impl Store for Device {
    fn len(&self) -> Result<u64, StoreError> {
        self.0.len()
    }
    fn has_fixed_len(&self) -> bool {
        true
    }
    fn read(&self, offset: u64, pages: &mut [&mut [u8]]) -> Result<u64, StoreError> {
        self.0.read(offset, pages)
    }
    fn write(&self, offset: u64, pages: &[&[u8]]) -> Result<(), StoreError> {
        let len: usize = pages.iter().map(|page| page.len()).sum();
        let fits = offset as usize + len <= LEN;
        if fits { self.0.write(offset, pages) } else { Err(StoreError::NO_SPACE) }
    }
    fn set_len(&self, _: u64) -> Result<(), StoreError> {
        Err(StoreError::from_code(22))
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.0.flush()
    }
}

fn cache() -> Cache<S3Fifo> {
    Cache::builder().memory(32 * PAGE).window(0).io_threads(0).open().expect("a cache")
}

/// As it was opened, and can be synced.
fn is_as_before(cache: &Cache<S3Fifo>, file: &CacheFile<S3Fifo>) {
    assert_eq!((file.len(), file.dirty_pages(), cache.stats().dirty), (LEN as u64, 0, 0));
    assert_eq!((file.sync(), cache.stats().write_errors), (Ok(()), 0));
    let mut bytes = vec![0; LEN + PAGE];
    let (mut at, end) = (0, bytes.len());
    while at < LEN {
        at += file.read_at(&mut bytes[at..end], at as u64).expect("it is there");
    }
    assert!(bytes[..LEN] == [7; LEN] && bytes[LEN..] == [0; PAGE]);
}

#[test]
fn what_is_beyond_the_end_is_not_written() {
    let (cache, device, len) = (cache(), Device::of_sevens(), LEN as u64);
    // Through others that stand before it, too.
    let store = FaultyStore::new(Box::new(device.clone()), |_| None::<StoreError>);
    let file = cache.open(store).unwrap();
    for offset in [len, len + 1, len + 50 * PAGE as u64, i64::MAX as u64 - 10] {
        let refused = Err(CacheError::BeyondStore { offset, len });
        assert_eq!(file.write_at(&[1; 10], offset), refused);
        assert_eq!(file.write_at(&[], offset), Ok(0), "nothing is always there");
    }
    let error = CacheError::BeyondStore { offset: len, len };
    let message = "offset 164352: the store ends with its 164352 bytes, and cannot grow";
    assert_eq!(error.to_string(), message);
    is_as_before(&cache, &file);
}

#[test]
fn what_begins_before_the_end_is_written_up_to_there() {
    let (cache, device) = (cache(), Device::of_sevens());
    let file = cache.open(device.clone()).unwrap();
    let mut all = vec![7; LEN];
    // In the page that is no whole one, from a page before it, and of the last byte.
    for (byte, before) in [(1, 100), (2, 512), (3, 3 * PAGE), (4, 1)] {
        let data = vec![byte; 5 * PAGE];
        assert_eq!(file.write_at(&data, (LEN - before) as u64), Ok(before));
        all[LEN - before..].fill(byte);
        assert_eq!((file.len(), file.sync()), (LEN as u64, Ok(())));
        assert!(device.0.durable() == all);
    }
    assert_eq!((cache.stats().dirty, cache.stats().write_errors), (0, 0));
}

#[test]
fn another_length_is_refused() {
    let (cache, len) = (cache(), LEN as u64);
    let file = cache.open(Device::of_sevens()).unwrap();
    file.write_at(&[7; 10], 5).unwrap();
    for asked in [0, 1, len - 1, len + 1, i64::MAX as u64] {
        assert_eq!(file.truncate(asked), Err(CacheError::FixedLen { asked, len }));
        assert_eq!((file.len(), file.dirty_pages()), (len, 1), "nothing has changed");
    }
    assert_eq!(file.truncate(len), Ok(()));
    let message = "a length of 1 bytes: the store has 164352, and cannot have others";
    assert_eq!(CacheError::FixedLen { asked: 1, len }.to_string(), message);
    assert_eq!(file.sync(), Ok(()));
    is_as_before(&cache, &file);
}

#[test]
fn an_unlinked_file_is_what_the_store_has() {
    let (cache, device) = (cache(), Device::of_sevens());
    let file = cache.open(device.clone()).unwrap();
    let other = file.clone();
    file.write_at(&[9; 3 * PAGE], 10).unwrap();
    file.unlink();
    is_as_before(&cache, &other);
    other.write_at(&[8; 2 * PAGE], LEN as u64 - 600).unwrap();
    assert_eq!((other.sync(), other.len()), (Ok(()), LEN as u64));
    let stored = device.0.durable();
    assert!(stored[..LEN - 600] == vec![7; LEN - 600] && stored[LEN - 600..] == [8; 600]);
}

#[test]
fn zeroes_end_where_it_does() {
    let (cache, device) = (cache(), Device::of_sevens());
    let file = cache.open(device.clone()).unwrap();
    file.zero_range(PAGE as u64 + 100..u64::MAX).unwrap();
    assert_eq!((file.sync(), file.len()), (Ok(()), LEN as u64));
    let (stored, begin) = (device.0.durable(), PAGE + 100);
    assert!(stored[..begin] == vec![7; begin] && stored[begin..] == vec![0; LEN - begin]);
}

/// Pages of a region go there and come back, and it has no byte of what was there before.
#[test]
fn a_region_may_be_on_it() {
    let cache = cache();
    let asked = LEN as u64 + 1;
    let longer = cache.anon_on(asked, Device::of_sevens()).map(|region| region.len());
    assert_eq!(longer, Err(CacheError::FixedLen { asked, len: LEN as u64 }));
    for len in [LEN, LEN - 200, 40 * PAGE, 1] {
        let device = Device::of_sevens();
        let region = cache.anon_on(len as u64, device.clone()).unwrap();
        let mut all = vec![0; len];
        // The last first: what is before it in the store is then the region's too.
        for at in [len - 1, len / 2, 0] {
            all[at] = 1 + at as u8 % 100;
            region.write_at(&all[at..=at], at as u64).unwrap();
            cache.write_behind(std::time::Duration::ZERO);
            assert_eq!(cache.stats().dirty, 0, "the store takes it");
            cache.set_bound(16).unwrap();
            cache.reclaim(usize::MAX);
            assert_eq!(region.resident(), 0);
            let mut read = vec![0xEE; len];
            region.read_at(&mut read, 0).unwrap();
            assert!(read == all, "{len} bytes");
        }
        assert_eq!(device.0.bytes().len(), LEN);
    }
    assert_eq!(cache.stats().write_errors, 0);
}
