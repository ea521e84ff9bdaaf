//! What the memory of a mount goes for.
//!
//! `--memory` is for the whole process: the program, its threads and the requests that they are at, the tables, and the data
//! of files, which get what is left. Where that would be less than half, the half is for data and tables all the same, and the
//! process takes more than was said.

use zonal_cache::evict::Evict;
use zonal_cache::threads::Builder;

use crate::session::{LEAST_MEMORY, Options};

/// The program and its libraries as far as they are used (3.6 MiB of the optimised one), and its heap but for tables.
const PROGRAM: usize = 5 << 20;
/// A thread's stack and heap: 160 KiB were touched at most.
const THREAD: usize = 192 << 10;
/// Threads beside those that answer the kernel: the first, the one that waits for these, two that read ahead, one that
/// writes behind.
const OTHERS: usize = 5;
/// Each thread that answers has room for a request that comes, and for an answer.
const BUFFERS: usize = 2;
/// The most that the kernel asks for by one request: as it has it by default, and as little as older kernels do.
const REQUEST: (usize, usize) = (1 << 20, 128 << 10);
/// Of as many parts of the memory requests get one, as long as they can be that small.
const PARTS: usize = 32;

/// Bytes of the largest request, for reading or writing: a power of 2.
pub(crate) fn request(options: &Options) -> usize {
    let each = options.memory / PARTS / BUFFERS / options.threads.max(1);
    1 << each.clamp(REQUEST.1, REQUEST.0).ilog2()
}

/// Bytes that data and tables do not get.
fn beside(options: &Options) -> usize {
    let threads = options.threads.max(1);
    PROGRAM + (threads + OTHERS) * THREAD + threads * BUFFERS * request(options)
}

/// Gives the cache what is left.
pub(crate) fn share<E: Evict>(builder: Builder<E>, options: &Options) -> Builder<E> {
    let rest = options.memory.saturating_sub(beside(options)).max(options.memory / 2);
    // The least bound is of data alone: a request fits. From here on as much is left when the tables are taken off.
    if rest < LEAST_MEMORY + LEAST_MEMORY / 8 {
        return builder.memory(LEAST_MEMORY);
    }
    builder.memory_in_all(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonal_cache::{Cache, S3Fifo};

    fn options(memory: usize, threads: usize) -> Options {
        Options { memory, threads, ..Options::default() }
    }

    fn bound(memory: usize, threads: usize) -> usize {
        let builder = Cache::<S3Fifo>::builder().io_threads(0);
        share(builder, &options(memory, threads)).open().unwrap().bound_bytes()
    }

    #[test]
    fn requests_are_a_part_of_the_memory_and_no_smaller_than_kernels_make_them() {
        let sizes = [(1, 4), (64, 4), (128, 4), (256, 4), (1024, 4), (64, 1), (64, 64)]
            .map(|(mib, threads)| request(&options(mib << 20, threads)) >> 10);
        assert_eq!(sizes, [128, 256, 512, 1024, 1024, 1024, 128]);
    }

    #[test]
    fn data_have_half_and_more_as_the_memory_grows() {
        assert_eq!(bound(LEAST_MEMORY, 2), LEAST_MEMORY, "one request fits");
        for memory in (1..300).step_by(3).map(|mib| mib << 20) {
            let bound = bound(memory, 4);
            assert!((memory * 44 / 100..=memory).contains(&bound), "{bound} of {memory}");
        }
        for (mib, least) in [(64, 80), (256, 88), (1024, 92)] {
            let bound = bound(mib << 20, 4) >> 10;
            assert!(bound * 100 >= least * (mib << 10), "{bound} KiB of {mib} MiB");
        }
    }
}
