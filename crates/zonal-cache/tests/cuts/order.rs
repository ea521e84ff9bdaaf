//! In which order the store is given what was done to a file, and told to keep it, call by call.

use super::model::PAGE;
use std::ops::Range;
use std::sync::Arc;
use zonal_cache::{Cache, CacheFile, MemoryStore, S3Fifo};

/// A file of four pages of ones that last, and of twos that were written over them and are dirty.
struct Dirty {
    memory: Arc<MemoryStore>,
    file: CacheFile<S3Fifo>,
}

impl Dirty {
    fn new() -> Self {
        let cache = Cache::<S3Fifo>::builder().memory(1 << 20).io_threads(0).open();
        let memory = Arc::new(MemoryStore::from(vec![1; 4 * PAGE]));
        let file = cache.expect("a cache").open(memory.clone()).expect("a file");
        assert_eq!(file.write_at(&vec![2; 4 * PAGE], 0), Ok(4 * PAGE));
        Self { memory, file }
    }

    /// What the store has if all but it ends now, and if the power goes and all is lost that it was not told to keep.
    fn has(&self, given: &[(u8, Range<usize>)], kept: &[(u8, Range<usize>)]) {
        let bytes = |pieces: &[(u8, Range<usize>)]| -> Vec<u8> {
            pieces.iter().flat_map(|(byte, range)| vec![*byte; range.len()]).collect()
        };
        assert!(self.memory.bytes() == bytes(given), "it was not given {given:?}");
        assert!(self.memory.durable() == bytes(kept), "it does not keep {kept:?}");
    }
}

const ALL: usize = 4 * PAGE;
const ONES: (u8, Range<usize>) = (1, 0..ALL);

#[test]
fn a_truncation_comes_before_what_was_written_before() {
    let it = Dirty::new();
    let len = 2 * PAGE + 100;
    it.file.truncate(len as u64).unwrap();
    it.has(&[(1, 0..len)], &[ONES]);
    it.file.write_back().unwrap();
    it.has(&[(2, 0..len)], &[ONES]);
    it.file.sync().unwrap();
    it.has(&[(2, 0..len)], &[(2, 0..len)]);
}

#[test]
fn a_file_that_is_made_longer_is_so_before_it_has_what_was_written_before() {
    let it = Dirty::new();
    it.file.truncate(5 * PAGE as u64).unwrap();
    it.has(&[ONES, (0, ALL..5 * PAGE)], &[ONES]);
    it.file.sync().unwrap();
    it.has(&[(2, 0..ALL), (0, ALL..5 * PAGE)], &[(2, 0..ALL), (0, ALL..5 * PAGE)]);
}

#[test]
fn whole_pages_are_zero_before_what_was_written_before_and_parts_of_pages_with_it() {
    let it = Dirty::new();
    let (start, end) = (PAGE / 2, 3 * PAGE + 100);
    it.file.zero_range(start as u64..end as u64).unwrap();
    it.has(&[(1, 0..PAGE), (0, PAGE..3 * PAGE), (1, 3 * PAGE..ALL)], &[ONES]);
    let all = [(2, 0..start), (0, start..end), (2, end..ALL)];
    it.file.write_back().unwrap();
    it.has(&all, &[ONES]);
    it.file.sync().unwrap();
    it.has(&all, &all);
}

/// A sync of a range has the store keep all that it was given, and no more is given to it than the range.
#[test]
fn a_range_is_kept_with_what_was_cut_off_before() {
    let it = Dirty::new();
    it.file.truncate(3 * PAGE as u64).unwrap();
    it.file.sync_range(0..1).unwrap();
    let all = [(2, 0..PAGE), (1, PAGE..3 * PAGE)];
    it.has(&all, &all);
}

/// What was dirty and is cut off is not given to the store when the file is long enough again.
#[test]
fn what_was_cut_off_does_not_come_back() {
    let it = Dirty::new();
    it.file.truncate(PAGE as u64).unwrap();
    it.file.truncate(ALL as u64).unwrap();
    it.has(&[(1, 0..PAGE), (0, PAGE..ALL)], &[ONES]);
    it.file.sync().unwrap();
    it.has(&[(2, 0..PAGE), (0, PAGE..ALL)], &[(2, 0..PAGE), (0, PAGE..ALL)]);
}
