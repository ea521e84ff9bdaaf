//! Block devices: loop devices on files, which root may make. Where there are none a line says why, and nothing is tested.

use std::fs::{self, File};
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use zonal_cache::store::Store;
use zonal_cache::{Cache, CacheError, CacheFile, FileStore, Ring, S3Fifo};

const PAGE: usize = 4096;
/// No whole number of pages: the last one has a sector.
const LEN: usize = 64 * PAGE + 512;

/// A device, until it is dropped; if this process is killed, too.
struct Device {
    path: PathBuf,
    /// The system takes it away with the last who has it open.
    _open: File,
    image: PathBuf,
    _directory: TempDir,
}

fn losetup(arguments: &[&Path]) -> Result<String, String> {
    let done = Command::new("losetup").args(arguments).output();
    let done = done.map_err(|error| format!("losetup: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

impl Device {
    /// A device with these bytes, if there can be one.
    fn new(bytes: &[u8]) -> Option<Self> {
        let said = |why: &String| {
            // Not by `eprintln`, of which nothing is seen where a test passes.
            let _ = writeln!(stderr(), "not run: no loop device: {why}");
        };
        Self::try_new(bytes).inspect_err(said).ok()
    }

    fn try_new(bytes: &[u8]) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root may make one".to_owned());
        }
        let _directory = tempfile::tempdir().expect("a directory");
        let image = _directory.path().join("image");
        fs::write(&image, bytes).expect("room for it");
        let path = losetup(&["--find".as_ref(), "--show".as_ref(), &image])?;
        let path = PathBuf::from(path);
        let opened = File::open(&path).map_err(|error| format!("{}: {error}", path.display()));
        // While it is open this says only that it is to go with who has it open last.
        losetup(&["--detach".as_ref(), &path])?;
        Ok(Self { path, _open: opened?, image, _directory })
    }

    /// What is read of it past any cache of this program, and what the file below has: the same.
    fn bytes(&self) -> Vec<u8> {
        let bytes = fs::read(&self.path).expect("it is there");
        assert!(bytes == fs::read(&self.image).expect("it is there"), "it was flushed");
        bytes
    }

    fn direct(&self) -> FileStore {
        let store = FileStore::open_direct(&self.path).expect("a device takes O_DIRECT");
        assert!(store.is_direct() && store.has_fixed_len());
        store
    }

    /// In each way that there is.
    fn stores(&self) -> Vec<FileStore> {
        let said = |error: &_| eprintln!("run without a ring: no io_uring: {error}");
        let ring = Ring::new(8).inspect_err(said).ok();
        let on_ring = ring.map(|ring| self.direct().with_ring(Some(ring)));
        [self.direct(), self.direct().buffered()].into_iter().chain(on_ring).collect()
    }
}

fn numbered() -> Vec<u8> {
    (0..LEN).map(|at| (at / 5) as u8 ^ (at >> 12) as u8).collect()
}

/// With room for a quarter of the device, so that pages come and go.
fn open(store: FileStore) -> (Cache<S3Fifo>, CacheFile<S3Fifo>) {
    let cache = Cache::builder().memory(17 * PAGE).window(4).io_threads(0).open().expect("a cache");
    let file = cache.open(store).expect("a file");
    assert_eq!(file.len(), LEN as u64);
    (cache, file)
}

fn reads(file: &CacheFile<S3Fifo>) -> Vec<u8> {
    let (mut bytes, mut at) = (vec![0xEE; LEN + PAGE], 0);
    while at < LEN {
        at += file.read_at(&mut bytes[at..], at as u64).expect("it is there");
    }
    bytes.truncate(at);
    bytes
}

/// Parts of pages are read first; all is there when the device is opened anew.
#[test]
fn what_is_written_to_a_device_lasts() {
    let Some(device) = Device::new(&numbered()) else { return };
    let mut all = numbered();
    for (turn, store) in device.stores().into_iter().enumerate() {
        let (cache, file) = open(store);
        let mut random = turn + 7;
        for _ in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (at, len) = (random >> 33, 1 + (random >> 20) % 6000);
            let at = at % LEN;
            let end = (at + len).min(LEN);
            all[at..end].fill(turn as u8 ^ at as u8);
            assert_eq!(file.write_at(&all[at..end], at as u64), Ok(end - at));
        }
        // The last byte, and the first of a page.
        all[LEN - 1] ^= 0x55;
        assert_eq!(file.write_at(&all[LEN - 1..], LEN as u64 - 1), Ok(1));
        all[PAGE] ^= 0x55;
        assert_eq!(file.write_at(&all[PAGE..=PAGE], PAGE as u64), Ok(1));
        assert!(reads(&file) == all);
        assert_eq!((file.sync(), file.dirty_pages()), (Ok(()), 0));
        assert!(device.bytes() == all);
        assert_eq!((cache.stats().write_errors, cache.stats().read_errors), (0, 0));
        drop((file, cache));
        assert!(reads(&open(device.direct()).1) == all);
    }
}

#[test]
fn ranges_of_a_device_are_zeroed() {
    let Some(device) = Device::new(&numbered()) else { return };
    for store in device.stores() {
        fs::write(&device.path, numbered()).expect("it is there");
        File::open(&device.path).and_then(|it| it.sync_all()).expect("it is there");
        let (mut all, (_cache, file)) = (numbered(), open(store));
        // Within a page, whole pages, parts at both ends, and beyond the end.
        let page = PAGE;
        for range in [10..20, page..3 * page, 4 * page + 5..9 * page + 7, 60 * page + 1..LEN + 99] {
            // Some of it is dirty.
            file.write_at(&[9; 3 * PAGE], range.start as u64).expect("room");
            let end = (range.start + 3 * PAGE).min(LEN);
            all[range.start..end].fill(9);
            assert_eq!(file.zero_range(range.start as u64..range.end as u64), Ok(()));
            all[range.start..range.end.min(LEN)].fill(0);
            assert!(reads(&file) == all, "{range:?}");
        }
        assert_eq!((file.sync(), file.len()), (Ok(()), LEN as u64));
        assert!(device.bytes() == all);
    }
}

/// What cannot be is refused, and the device and what is dirty are as before.
#[test]
fn a_device_keeps_its_length() {
    let Some(device) = Device::new(&numbered()) else { return };
    let (mut all, len) = (numbered(), LEN as u64);
    for store in device.stores() {
        let (cache, file) = open(store);
        for offset in [len, len + 4000, 1 << 40] {
            let refused = Err(CacheError::BeyondStore { offset, len });
            assert_eq!(file.write_at(&[1; 10], offset), refused);
        }
        for asked in [0, len - 512, len + 1] {
            assert_eq!(file.truncate(asked), Err(CacheError::FixedLen { asked, len }));
        }
        assert_eq!(file.truncate(len), Ok(()));
        assert_eq!((file.len(), file.sync(), file.dirty_pages()), (len, Ok(()), 0));
        // What begins before the end.
        assert_eq!(file.write_at(&[3; 2 * PAGE], len - 5000), Ok(5000));
        all[LEN - 5000..].fill(3);
        assert_eq!((file.sync(), file.len()), (Ok(()), len));
        assert!(device.bytes() == all && reads(&file) == all);
        // What was not synced goes with the name, and the device does not.
        let other = file.clone();
        assert_eq!(file.write_at(&[4; 10], 0), Ok(10));
        file.unlink();
        assert!(reads(&other) == all);
        assert_eq!(other.write_at(&[5; 10], 0), Ok(10));
        all[..10].fill(5);
        assert_eq!((other.sync(), other.len()), (Ok(()), len));
        assert!(device.bytes() == all);
        assert_eq!((cache.stats().write_errors, cache.stats().dirty), (0, 0));
    }
}

/// As to a swap device: what was there before is none of the region's.
#[test]
fn pages_of_a_region_go_to_a_device() {
    let Some(device) = Device::new(&numbered()) else { return };
    let cache = Cache::<S3Fifo>::builder().memory(17 * PAGE).window(0).open().expect("a cache");
    let region = cache.anon_on(LEN as u64, device.direct()).expect("it is as long");
    let mut all = vec![0; LEN];
    for at in (0..LEN).step_by(2 * PAGE + 100).rev() {
        all[at] = 1 + at as u8 % 100;
        region.write_at(&all[at..=at], at as u64).expect("the device takes others");
    }
    let mut read = vec![0xEE; LEN];
    region.read_at(&mut read, 0).expect("it is there");
    assert!(read == all);
    let stats = cache.stats();
    assert!(stats.written > 0 && stats.write_errors == 0, "{stats:?}");
}
