//! A file as it should be, where several virtual CPUs read and change it at once.
//!
//! It is cut into pieces of a thousand bytes, and where pages end. A piece has what the last change of it wrote; of changes
//! that were on their way at once it may have any. So it remembers the changes of a piece, when each began and returned, and a
//! read may have had what no later change had replaced before the read began.

use super::CPUS;
use core::ops::Range;
use zonal_cache::frames::PAGE;

/// Pages that a file has at most.
pub(super) const PAGES: u64 = 24;
pub(super) const END: u64 = PAGES * PAGE as u64;
/// Bytes of a piece, but for those at the ends of pages.
const PIECE: u64 = 1000;

/// What a change does to the pieces that it touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Write,
    Zero,
    /// All from the first of the pieces on are gone.
    Cut,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// It happened up to this byte, and not beyond.
    Upto(u64),
    /// It may have happened, of each piece by itself.
    Perhaps,
}

/// What a piece may have.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// The number of the write; 0 for zeroes.
    number: u32,
    began: u64,
    /// When its call returned: it does not happen later.
    returned: Option<u64>,
    /// Whether it happened.
    is_sure: bool,
    /// When it was first seen.
    seen: Option<u64>,
}

impl Version {
    /// Whether it had happened before `moment`, as its call said, or as a read showed.
    fn is_before(&self, moment: u64, by_looks: bool) -> bool {
        let said = self.returned.is_some_and(|at| self.is_sure && at < moment);
        said || (by_looks && self.seen.is_some_and(|at| at < moment))
    }
}

/// What a virtual CPU does to the file.
#[derive(Clone, Debug)]
struct Open {
    began: u64,
    /// Bytes that the file has meanwhile, at least and at most.
    len: (u64, u64),
    /// A change of the length, and whether another was on its way at once.
    change: Option<(Change, Range<usize>)>,
    is_beside: bool,
}

/// The model.
#[derive(Debug)]
pub(super) struct Model {
    /// Where pieces begin, and where the last ends.
    cuts: Vec<u64>,
    pieces: Vec<Vec<Version>>,
    /// Bytes that the file has, at least and at most.
    len: (u64, u64),
    open: [Option<Open>; CPUS],
    /// Events so far.
    now: u64,
    /// When the last sync that went well began.
    synced: u64,
    writes: u32,
    /// Looks at pieces that might have had something else.
    pub(super) choices: u64,
}

/// What a write puts into a piece: its number and that of the piece, again and again.
fn fill(number: u32, piece: usize, len: usize) -> Vec<u8> {
    if number == 0 {
        return vec![0; len];
    }
    let word = u64::from(number) << 32 | (piece as u64) << 8 | 1;
    let mut bytes = word.to_le_bytes().repeat(len.div_ceil(8));
    bytes.truncate(len);
    bytes
}

impl Model {
    /// A file of this number of pages, and its bytes.
    pub(super) fn new(pages: u64) -> (Self, Vec<u8>) {
        let ends = (0..=END).step_by(PAGE).chain((0..END).step_by(PIECE as usize));
        let mut cuts: Vec<u64> = ends.collect();
        cuts.sort_unstable();
        cuts.dedup();
        let len = pages * PAGE as u64;
        let version =
            |number| Version { number, began: 0, returned: Some(0), is_sure: true, seen: None };
        let starts = cuts.iter().take(cuts.len() - 1);
        let pieces = starts.map(|&at| vec![version(u32::from(at < len))]).collect();
        let model = Self {
            cuts,
            pieces,
            len: (len, len),
            open: [const { None }; CPUS],
            now: 0,
            synced: 0,
            writes: 1,
            choices: 0,
        };
        let all = model.pieces_of(0..len);
        let bytes = all.flat_map(|piece| fill(1, piece, model.bytes_of(piece).len())).collect();
        (model, bytes)
    }

    pub(super) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes of a piece.
    fn bytes_of(&self, piece: usize) -> Range<usize> {
        self.cuts[piece] as usize..self.cuts[piece + 1] as usize
    }

    /// Where a piece begins; of the one behind the last, where the file ends at most.
    pub(super) fn start_of(&self, piece: usize) -> u64 {
        self.cuts[piece]
    }

    /// The pieces that a range of bytes touches.
    fn pieces_of(&self, bytes: Range<u64>) -> Range<usize> {
        let first = self.cuts.partition_point(|&at| at <= bytes.start) - 1;
        first..self.cuts.partition_point(|&at| at < bytes.end).min(self.pieces.len())
    }

    /// Whether a change of the length is on its way.
    fn is_changing(&self) -> bool {
        self.open.iter().flatten().any(|open| open.change.is_some())
    }

    /// A virtual CPU begins to look at the file.
    pub(super) fn look(&mut self, cpu: usize) -> u64 {
        self.now += 1;
        let open = Open { began: self.now, len: self.len, change: None, is_beside: false };
        self.open[cpu] = Some(open);
        self.now
    }

    /// A virtual CPU begins to change pieces; what it writes, if it does.
    pub(super) fn change(&mut self, cpu: usize, change: Change, pieces: Range<usize>) -> Vec<u8> {
        let began = self.look(cpu);
        let (start, end) = (self.cuts[pieces.start], self.cuts[pieces.end]);
        match change {
            Change::Write => self.set_len(self.len.0, self.len.1.max(end)),
            Change::Cut => self.set_len(self.len.0.min(start), self.len.1.max(start)),
            Change::Zero => {}
        }
        if change != Change::Zero {
            let is_beside = self.is_changing();
            if let Some(open) = &mut self.open[cpu] {
                open.change = Some((change, pieces.clone()));
            }
            self.open.iter_mut().flatten().for_each(|open| open.is_beside |= is_beside);
        }
        let is_write = change == Change::Write;
        self.writes += u32::from(is_write);
        let number = if is_write { self.writes } else { 0 };
        let version = Version { number, began, returned: None, is_sure: false, seen: None };
        self.forget(pieces.clone());
        pieces.clone().for_each(|piece| self.pieces[piece].push(version));
        if !is_write {
            return Vec::new();
        }
        pieces.flat_map(|piece| fill(number, piece, self.bytes_of(piece).len())).collect()
    }

    /// The length may be these, and those who look at the file meanwhile may see any of them.
    fn set_len(&mut self, least: u64, most: u64) {
        self.len = (least, most);
        for open in self.open.iter_mut().flatten() {
            open.len = (open.len.0.min(least), open.len.1.max(most));
        }
    }

    /// Versions go that no read and no sync will find any more.
    fn forget(&mut self, pieces: Range<usize>) {
        let oldest = self.open.iter().flatten().map(|open| open.began).min();
        let moment = oldest.unwrap_or(self.now).min(self.synced);
        for versions in &mut self.pieces[pieces] {
            let gone = |it: &Version| is_replaced(versions, it, moment, false);
            let kept = versions.iter().filter(|it| !gone(it)).copied().collect();
            *versions = kept;
        }
    }

    /// The change that a virtual CPU began is over.
    pub(super) fn changed(&mut self, cpu: usize, pieces: Range<usize>, ended: Ended) {
        self.now += 1;
        let (now, Some(open)) = (self.now, self.open[cpu].take()) else { return };
        let upto = match ended {
            Ended::Upto(upto) => upto,
            Ended::Perhaps => END,
        };
        for piece in pieces {
            let happened = self.cuts[piece + 1] <= upto;
            let versions = &mut self.pieces[piece];
            versions.retain(|it| happened || it.began != open.began);
            for version in versions.iter_mut().filter(|it| it.began == open.began) {
                version.returned = Some(now);
                version.is_sure = ended != Ended::Perhaps;
            }
        }
        // What was on its way at once may have come before it or after: the length is seen when all are over.
        match open.change {
            Some((Change::Write, _)) if !open.is_beside => {
                self.set_len(self.len.0.max(upto), self.len.1.max(upto));
            }
            Some((Change::Cut, pieces)) if !open.is_beside && upto == END => {
                let len = self.cuts[pieces.start];
                self.set_len(len, len);
            }
            _ => {}
        }
    }

    /// Bytes that the file had since a virtual CPU began, at least and at most.
    pub(super) fn lens(&self, cpu: usize) -> (u64, u64) {
        self.open[cpu].as_ref().map_or(self.len, |open| open.len)
    }

    /// What a virtual CPU looked at is over.
    pub(super) fn looked(&mut self, cpu: usize) {
        self.now += 1;
        self.open[cpu] = None;
    }

    /// The file is this long, now.
    pub(super) fn is_long(&mut self, len: u64) -> Result<(), String> {
        let (least, most) = self.len;
        if !(least..=most).contains(&len) {
            return Err(format!("it is {len} bytes long, and not {least} to {most}"));
        }
        if !self.is_changing() {
            self.len = (len, len);
        }
        Ok(())
    }

    /// A virtual CPU was given bytes from `at` on, of those that it asked for, in what it has begun.
    pub(super) fn saw(
        &mut self,
        cpu: usize,
        at: u64,
        (bytes, asked): (&[u8], u64),
        may_stop: bool,
    ) -> Result<(), String> {
        let Some(open) = self.open[cpu].clone() else { return Err("nothing was begun".into()) };
        let of = |len: u64| len.saturating_sub(at).min(asked);
        let (least, most, got) = (of(open.len.0), of(open.len.1), bytes.len() as u64);
        if got > most || (got < least && !may_stop) {
            return Err(format!("{got} bytes at {at}, and not {least} to {most}"));
        }
        for piece in self.pieces_of(at..at + got) {
            if !self.has(piece, (at, bytes), (open.began, true)) {
                return Err(format!("wrong: {}", self.told(piece, (at, bytes))));
            }
        }
        Ok(())
    }

    /// Whether a piece may have what of `bytes` is in it, for one who began to look at `moment`.
    fn has(
        &mut self,
        piece: usize,
        (at, bytes): (u64, &[u8]),
        (moment, looks): (u64, bool),
    ) -> bool {
        let own = self.bytes_of(piece);
        let (from, upto) = (own.start.max(at as usize), own.end.min(at as usize + bytes.len()));
        let part = &bytes[from - at as usize..upto - at as usize];
        let versions = &self.pieces[piece];
        let may = |it: &Version| !is_replaced(versions, it, moment, looks);
        let is_it = |it: &Version| {
            fill(it.number, piece, own.len())[from - own.start..upto - own.start] == *part
        };
        let (mut found, mut others) = (Vec::new(), 0);
        for (number, version) in versions.iter().enumerate().filter(|(_, it)| may(it)) {
            if is_it(version) {
                found.push(number);
            } else {
                others += 1;
            }
        }
        self.choices += u64::from(others > 0 && looks);
        if let ([one], true) = (&found[..], looks) {
            let version = &mut self.pieces[piece][*one];
            version.seen = version.seen.or(Some(self.now));
        }
        !found.is_empty()
    }

    /// What there is and what there should be.
    fn told(&self, piece: usize, (at, bytes): (u64, &[u8])) -> String {
        let own = self.bytes_of(piece);
        let from = own.start.max(at as usize);
        let some: Vec<u8> = bytes[from - at as usize..].iter().copied().take(8).collect();
        format!("{some:02x?} at {from}, piece {piece} of {own:?}: {:x?}", self.pieces[piece])
    }

    /// A sync that began at `from` went well, or the last that did is looked back at: pages that do not last as they were
    /// since, of which there may be `lost`.
    pub(super) fn lasts(
        &mut self,
        from: Option<u64>,
        durable: &[u8],
        lost: u64,
    ) -> Result<(), String> {
        self.synced = from.unwrap_or(0).max(self.synced);
        let mut bytes = durable.to_vec();
        if bytes.len() as u64 > END {
            return Err(format!("{} bytes last", bytes.len()));
        }
        bytes.resize(END as usize, 0);
        let (mut wrong, mut said) = (Vec::new(), None);
        for piece in 0..self.count() {
            if !self.has(piece, (0, &bytes), (self.synced, false)) {
                wrong.push(self.cuts[piece] / PAGE as u64);
                said = said.or_else(|| Some(self.told(piece, (0, &bytes))));
            }
        }
        wrong.dedup();
        match said {
            Some(said) if wrong.len() as u64 > lost => {
                Err(format!("pages {wrong:?} do not last, {lost} may not: {said}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether no one who begins at `moment` finds a version any more: another that began after it had returned has happened.
fn is_replaced(versions: &[Version], it: &Version, moment: u64, by_looks: bool) -> bool {
    let Some(returned) = it.returned else { return false };
    versions.iter().any(|other| other.began > returned && other.is_before(moment, by_looks))
}
