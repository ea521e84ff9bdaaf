//! What a client may send that is no memory to fill.

use crate::client::{Kind, pattern};
use crate::handover::{HandoverError, REGIONS, Region, connected, hand_over, last_words, send};
use crate::memory::Memory;
use crate::serve::{Pager, ServeError};
use crate::uffd::Uffd;
use crate::{LEN, Place, open, succeeded};
use libtest_mimic::Failed;
use rustix::fd::{AsFd, BorrowedFd};
use std::fs::File;
use std::thread;
use zonal_cache::MemoryStore;

/// Each client is told what is wrong, and a client that comes after them is served.
pub(crate) fn hand_overs_that_are_malformed() -> Result<(), Failed> {
    let place = Place::new()?;
    let (_cache, file) = open(MemoryStore::from(pattern(LEN)))?;
    let (faults, other) = (Uffd::new()?, File::open("/dev/null")?);
    let (fd, no) = (faults.as_fd(), other.as_fd());
    let (snapshot, good) = (LEN as u64, Region { address: 1 << 30, len: 8192, offset: 4096 });
    let region = |change: fn(&mut Region)| {
        let mut region = good;
        change(&mut region);
        region
    };
    let one = good.bytes().to_vec();
    let mut cases: Vec<(Vec<u8>, Vec<BorrowedFd<'_>>, HandoverError)> = vec![
        (one[..23].to_vec(), vec![fd], HandoverError::Length(23)),
        ([&one[..], &[0]].concat(), vec![fd], HandoverError::Length(25)),
        (one.repeat(REGIONS + 1), vec![fd], HandoverError::Length(216)),
        (vec![1; 100_000], vec![fd], HandoverError::Length(100_000)),
        (one.clone(), vec![], HandoverError::Descriptors(0)),
        (one.clone(), vec![fd, fd], HandoverError::Descriptors(2)),
        (one.clone(), vec![no], HandoverError::NotUserfaultfd),
    ];
    for not_pages in [
        region(|it| it.address += 1),
        region(|it| it.offset += 512),
        region(|it| it.len -= 1),
        region(|it| it.len = 0),
        region(|it| it.address = 0_u64.wrapping_sub(4096)),
    ] {
        // Also where another one is as it should be.
        let bytes = [good.bytes(), not_pages.bytes()].concat();
        cases.push((bytes, vec![fd], HandoverError::NotPages(not_pages)));
    }
    for region in [
        region(|it| it.offset = LEN as u64 - 4096),
        region(|it| it.len = LEN as u64),
        region(|it| it.offset = 0_u64.wrapping_sub(4096)),
    ] {
        let bytes = region.bytes().to_vec();
        cases.push((bytes, vec![fd], HandoverError::Beyond { region, snapshot }));
    }
    let mut clients = Vec::new();
    for (bytes, fds, _) in &cases {
        let socket = connected(&place.socket)?;
        send(&socket, bytes, fds)?;
        clients.push(socket);
    }
    // One that goes without a word.
    drop(connected(&place.socket)?);
    let child = place.spawn(Kind::Plain, 1)?;
    let pager = Pager { file: &file, step: 4096, poison: true };
    let mut reports = pager.serve(&place.listener, cases.len() + 2)?;
    succeeded(child)?;
    let last = reports.pop().ok_or("a client that was served")?;
    assert!(last.end.is_ok(), "{last:?}");
    let expected = cases.iter().map(|(_, _, error)| error).chain([&HandoverError::Length(0)]);
    for (report, expected) in reports.iter().zip(expected) {
        let is = matches!(&report.end, Err(ServeError::Handover(error)) if error == expected);
        assert!(is, "{report:?}, and not {expected:?}");
    }
    for (socket, (_, _, error)) in clients.iter().zip(&cases) {
        assert_eq!(last_words(socket)?, error.to_string());
    }
    Ok(())
}

/// Faults of memory that was not handed over come too, as the kernel knows only what is registered.
pub(crate) fn a_fault_elsewhere() -> Result<(), Failed> {
    let place = Place::new()?;
    let (_cache, file) = open(MemoryStore::from(pattern(LEN)))?;
    let pager = Pager { file: &file, step: 4096, poison: true };
    let faults = Uffd::new()?;
    let memory = Memory::new(&faults, 2 * 4096)?;
    let (bytes, socket) = (memory.bytes(), connected(&place.socket)?);
    let region = Region { len: 4096, ..memory.region(0) };
    thread::scope(|scope| {
        hand_over(&socket, &faults, &[region])?;
        let touching = scope.spawn(|| (bytes[4], bytes[4096]));
        let reports = pager.serve(&place.listener, 1)?;
        let end = reports[0].end.as_ref().expect_err("it is told").to_string();
        assert_eq!(end, ServeError::Elsewhere(region.address + 4096).to_string());
        assert_eq!(last_words(&socket)?, end);
        // With the last descriptor: it reads a zero, and ends.
        drop(faults);
        assert_eq!(touching.join().expect("it does not panic"), (pattern(5)[4], 0));
        Ok(())
    })
}

/// What is there is filled, also where the kernel refuses a step because of the rest: a client may unmap memory at any time.
pub(crate) fn a_region_that_is_there_in_part() -> Result<(), Failed> {
    let place = Place::new()?;
    let (_cache, file) = open(MemoryStore::from(pattern(LEN)))?;
    let pager = Pager { file: &file, step: 2 << 20, poison: true };
    let faults = Uffd::new()?;
    let memory = Memory::new(&faults, 2 * 4096)?;
    let (bytes, socket) = (memory.bytes(), connected(&place.socket)?);
    hand_over(&socket, &faults, &[Region { len: 5 * 4096, ..memory.region(0) }])?;
    thread::scope(|scope| {
        let serving = scope.spawn(|| pager.serve(&place.listener, 1));
        assert!(*bytes == pattern(LEN)[..2 * 4096]);
        drop(socket);
        let reports = serving.join().expect("it does not panic")?;
        assert!(reports[0].end.is_ok() && reports[0].filled == 2, "{reports:?}");
        Ok(())
    })
}
