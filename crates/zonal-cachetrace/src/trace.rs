//! Block traces, as text or as records of bytes.
//!
//! | format | a line, or a record |
//! |---|---|
//! | `msr` | `timestamp,host,disk,Read,offset,size,latency`: the traces of Microsoft Research Cambridge; bytes |
//! | `spc` | `unit,sector,size,R,timestamp`: the Storage Performance Council's; sectors of 512 bytes, size in bytes |
//! | `arc` | `first count ignored number`: those of the paper on ARC; pages of 512 bytes or what was traced, taken as pages |
//! | `blkparse` | `8,0 1 5 0.1 99 Q R 2048 + 8 [name]`: of Linux's blktrace; queued requests, sectors of 512 bytes |
//! | `fio` | `name read 4096 8192`, an I/O log of fio, version 2; bytes |
//! | `pages` | `17`: a page a line |
//! | `vscsi` | 32 bytes, of vscsiStats, version 1: serial, bytes, segments, command, version, sector, time |
//! | `oracle-general` | 24 bytes, of libCacheSim: time, object, its bytes, when it comes next |
//!
//! Numbers in records are little-endian. Lines that are empty, or begin with `#`, and heads of tables are passed over.
//!
//! ```
//! use zonal_cachetrace::trace::{Format, Request};
//! let line = "128166372003061629,usr,0,Read,7014609920,24576,41286";
//! assert_eq!(Format::guess(line), Some(Format::Msr));
//! let request = Format::Msr.parse(line)?.unwrap();
//! assert_eq!(request, Request { file: 0, offset: 7_014_609_920, bytes: 24_576 });
//! assert_eq!(request.pages(4096).count(), 7);
//! let record = [&1_u32.to_le_bytes()[..], &17_u64.to_le_bytes(), &9000_u32.to_le_bytes(), &[0; 8]];
//! let request = Format::OracleGeneral.decode(&record.concat())?.unwrap();
//! assert_eq!(request, Request { file: 17, offset: 0, bytes: 9000 });
//! # Ok::<(), zonal_cachetrace::trace::LineError>(())
//! ```

use std::ops::Range;

use clap::ValueEnum;

const SECTOR: u64 = 512;

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Microsoft Research Cambridge, CSV
    Msr,
    /// Storage Performance Council
    Spc,
    /// The paper on ARC: first page, count, two more numbers
    Arc,
    /// What Linux's blkparse prints
    Blkparse,
    /// An I/O log of fio, version 2
    Fio,
    /// A page a line
    Pages,
    /// What vscsiStats writes, version 1: records
    Vscsi,
    /// What libCacheSim has, not compressed: records
    OracleGeneral,
}

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which disk or file.
    pub file: u64,
    /// In bytes; in pages where the format counts in pages.
    pub offset: u64,
    /// In bytes; 0 for a format that counts in pages: see [`pages`](Self::pages).
    pub bytes: u64,
}

impl Request {
    /// The pages that it touches, of `page` bytes each.
    #[must_use]
    pub const fn pages(self, page: u64) -> Range<u64> {
        self.offset / page..self.offset.saturating_add(self.bytes).div_ceil(page)
    }
}

/// What is wrong with a line or a record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineError {
    /// It has too few fields.
    #[error("{found} fields, and {wanted} are needed")]
    Fields {
        /// How many there are.
        found: usize,
        /// How many there have to be.
        wanted: usize,
    },
    /// A field is no number.
    #[error("`{text}` is not a number")]
    Number {
        /// The field.
        text: String,
    },
    /// A request that ends beyond 2⁶³.
    #[error("the request ends beyond 2^63")]
    TooFar,
    /// A line that is longer than any that is read.
    #[error("more than {most} bytes without an end of line")]
    TooLong {
        /// How many a line may have.
        most: u64,
    },
    /// A record that ends too early.
    #[error("{found} bytes, and a record has {wanted}")]
    Short {
        /// How many there are.
        found: usize,
        /// How many there have to be.
        wanted: usize,
    },
    /// A record of another version, or of another format.
    #[error("a record of version {found}, and 1 is what is read")]
    Version {
        /// What it says.
        found: u16,
    },
    /// A format of lines where one of records is needed, or the other way round.
    #[error("the format has no such thing")]
    Kind,
    /// No format has such a line.
    #[error("no known format has such a line; --format names one")]
    Unknown,
}

fn number(text: &str) -> Result<u64, LineError> {
    text.trim().parse().map_err(|_| LineError::Number { text: text.to_owned() })
}

/// A number that stands for a name.
fn numbered(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn fields<'a, const N: usize>(
    line: &'a str,
    split: impl Fn(&'a str) -> Vec<&'a str>,
) -> Result<[&'a str; N], LineError> {
    let all = split(line);
    let found = all.len();
    let first = all.get(..N).and_then(|first| first.try_into().ok());
    first.ok_or(LineError::Fields { found, wanted: N })
}

fn commas(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn request(file: u64, offset: u64, bytes: u64, unit: u64) -> Result<Option<Request>, LineError> {
    let offset = offset.checked_mul(unit).ok_or(LineError::TooFar)?;
    let end = offset.checked_add(bytes).filter(|&end| end <= i64::MAX as u64);
    end.ok_or(LineError::TooFar)?;
    Ok((bytes > 0).then_some(Request { file, offset, bytes }))
}

impl Format {
    /// Which format a line is of, from the most particular on.
    #[must_use]
    pub fn guess(line: &str) -> Option<Self> {
        let all = [Self::Msr, Self::Spc, Self::Blkparse, Self::Fio, Self::Arc, Self::Pages];
        all.into_iter().find(|format| match format.parse(line) {
            Ok(Some(_)) => true,
            // Many may come before the first request.
            Ok(None) => *format == Self::Blkparse && is_event(line),
            Err(_) => false,
        })
    }

    /// What a line asks for; `None` for one that asks for nothing.
    ///
    /// # Errors
    /// [`LineError`] for a line that is none of the format.
    pub fn parse(self, line: &str) -> Result<Option<Request>, LineError> {
        match self {
            Self::Msr => {
                let [_, host, disk, kind, offset, size] = fields(line, commas)?;
                if !is_io(kind) {
                    return Ok(None);
                }
                // One host's first disk is file 0, as most traces have one.
                let file = number(disk)?;
                let file = if file == 0 { 0 } else { file ^ numbered(host) };
                request(file, number(offset)?, number(size)?, 1)
            }
            Self::Spc => {
                let [unit, sector, size, kind] = fields(line, commas)?;
                if !is_io(kind) {
                    return Err(LineError::Number { text: kind.to_owned() });
                }
                request(number(unit)?, number(sector)?, number(size)?, SECTOR)
            }
            Self::Blkparse => queued(line),
            Self::Fio => {
                let all = words(line);
                let [name, action, offset, bytes] = all[..] else {
                    // Its first line, and files that are opened and closed.
                    return Ok(None);
                };
                if !matches!(action, "read" | "write") {
                    return Ok(None);
                }
                request(numbered(name), number(offset)?, number(bytes)?, 1)
            }
            Self::Arc => {
                let [first, count, _, _] = fields(line, words)?;
                number(fields::<4>(line, words)?[3])?;
                request(0, number(first)?, number(count)?, 1)
            }
            Self::Pages => request(0, number(line)?, 1, 1),
            Self::Vscsi | Self::OracleGeneral => Err(LineError::Kind),
        }
    }

    /// How many bytes a record has; `None` for text.
    #[must_use]
    pub const fn record(self) -> Option<usize> {
        match self {
            Self::Vscsi => Some(32),
            Self::OracleGeneral => Some(24),
            _ => None,
        }
    }

    /// What a record asks for; `None` for one that asks for nothing.
    ///
    /// # Errors
    /// [`LineError`] for what is no record of the format.
    pub fn decode(self, record: &[u8]) -> Result<Option<Request>, LineError> {
        let wanted = self.record().ok_or(LineError::Kind)?;
        if record.len() != wanted {
            return Err(LineError::Short { found: record.len(), wanted });
        }
        let number = |at: usize, bytes: usize| {
            record[at..at + bytes].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        if self == Self::OracleGeneral {
            return request(number(4, 8), 0, number(12, 4), 1);
        }
        match (number(14, 2) >> 8) as u16 {
            1 => request(0, number(16, 8), number(4, 4), SECTOR),
            found => Err(LineError::Version { found }),
        }
    }

    /// Whether it counts in pages and not in bytes.
    #[must_use]
    pub const fn counts_pages(self) -> bool {
        matches!(self, Self::Arc | Self::Pages)
    }
}

/// What a line of blkparse asks for, if it is a request that is queued. Other events, messages and the summary at
/// the end ask for nothing, and neither does what has no sector: a flush, a command.
fn queued(line: &str) -> Result<Option<Request>, LineError> {
    let all = words(line);
    if all.get(5) != Some(&"Q") {
        return Ok(None);
    }
    // A word that is missing is one that was cut off.
    let may = |at: usize, fits: fn(&str) -> bool| all.get(at).is_none_or(|word| fits(word));
    let transfers = may(6, |kind| kind.contains(['R', 'W']))
        && may(7, |sector| !sector.starts_with('['))
        && may(8, |plus| plus == "+");
    if !transfers {
        return Ok(None);
    }
    let [device, _, _, _, _, _, _, sector, _, count] = fields(line, words)?;
    let bytes = number(count)?.checked_mul(SECTOR).ok_or(LineError::TooFar)?;
    request(numbered(device), number(sector)?, bytes, SECTOR)
}

/// Whether a line is an event, or a message, of blkparse: `8,0 1 5 0.1 99 P N [name]`.
fn is_event(line: &str) -> bool {
    let [device, cpu, sequence, time, pid, _, _, ..] = words(line)[..] else { return false };
    let numbers = [device.split_once(','), time.split_once('.'), Some((cpu, sequence))];
    let are_numbers = |(one, other): (&str, &str)| number(one).and(number(other)).is_ok();
    numbers.into_iter().all(|pair| pair.is_some_and(are_numbers)) && number(pid).is_ok()
}

fn is_io(kind: &str) -> bool {
    ["read", "write", "r", "w", "rs", "ws"].contains(&&*kind.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_recognised_and_read() {
        for (line, format, file, offset, bytes) in [
            ("128166372003061629,usr,0,Write,4096,512,41286", Format::Msr, 0, 4096, 512),
            ("0,20941264,8192,W,0.551706", Format::Spc, 0, 20_941_264 * 512, 8192),
            ("17 3 0 99", Format::Arc, 0, 17, 3),
            ("17", Format::Pages, 0, 17, 1),
            ("/data/x read 8192 4096", Format::Fio, numbered("/data/x"), 8192, 4096),
            (
                "  8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]",
                Format::Blkparse,
                numbered("8,0"),
                223_490 * 512,
                4096,
            ),
        ] {
            assert_eq!(Format::guess(line), Some(format), "{line}");
            assert_eq!(format.parse(line), Ok(Some(Request { file, offset, bytes })), "{line}");
        }
    }

    #[test]
    fn what_is_no_request_is_passed_over_and_what_is_nonsense_is_refused() {
        assert_eq!(Format::Fio.parse("fio version 2 iolog"), Ok(None));
        assert_eq!(Format::Fio.parse("/data/x open"), Ok(None));
        let issued = "  8,0 3 1 0.0 697 D W 223490 + 8 [x]";
        assert_eq!(Format::Blkparse.parse(issued), Ok(None), "counted when it was queued");
        assert_eq!(Format::guess("Timestamp,Hostname,DiskNumber,Type,Offset,Size"), None);
        assert_eq!(Format::Pages.parse("x").unwrap_err().to_string(), "`x` is not a number");
        let few = Format::Spc.parse("1,2").unwrap_err();
        assert_eq!(few, LineError::Fields { found: 2, wanted: 4 });
        assert_eq!(Format::Vscsi.parse("1"), Err(LineError::Kind));
        let far = Format::Spc.parse("0,18446744073709551615,8,R").unwrap_err();
        assert_eq!(far, LineError::TooFar);
    }

    #[test]
    fn of_blkparse_what_is_queued_is_a_request() {
        let event = |rest: &str| format!("  8,0    0       12     0.000105121  4162 {rest}");
        for rest in [
            " P   N [fio]",
            " U   N [fio] 1",
            " m   N cfq4162S / complete rqnoidle 0",
            " Q FWS [kworker/0:1H]",
            " Q   D 2048 + 8 [fstrim]",
            " Q   R 36 (12 00 00 00 24 00 ..) [udevd]",
            " A  WS 223490 + 8 <- (8,1) 221442",
            " I  WS 223490 + 8 [fio]",
            " D  WS 223490 + 8 [fio]",
            " C  WS 223490 + 8 [0]",
            " X   R 223490 / 223494 [fio]",
        ] {
            let line = event(rest);
            assert_eq!(Format::Blkparse.parse(&line), Ok(None), "{line}");
            assert_eq!(Format::guess(&line), Some(Format::Blkparse), "{line}");
        }
        for summary in [
            "CPU0 (sda):",
            " Reads Queued:           0,        0KiB\t Writes Queued:           7,      128KiB",
            "Throughput (R/W): 0KiB/s / 4,128KiB/s",
            "Events (sda): 86 entries",
        ] {
            assert_eq!(Format::Blkparse.parse(summary), Ok(None), "{summary}");
            assert_eq!(Format::guess(summary), None, "{summary}");
        }
        for (cut, found) in [(" Q", 6), (" Q  WS", 7), (" Q  WS 223490", 8), (" Q  WS 223490 +", 9)]
        {
            let error = Format::Blkparse.parse(&event(cut)).unwrap_err();
            assert_eq!(error, LineError::Fields { found, wanted: 10 }, "{cut}");
        }
    }

    fn vscsi(version: u16, sector: u64, bytes: u32) -> Vec<u8> {
        let mut record = vec![0; 32];
        record[4..8].copy_from_slice(&bytes.to_le_bytes());
        record[12] = 0x2a;
        record[14..16].copy_from_slice(&(version << 8).to_le_bytes());
        record[16..24].copy_from_slice(&sector.to_le_bytes());
        record
    }

    #[test]
    fn records_are_read_and_others_refused() {
        let read = Format::Vscsi.decode(&vscsi(1, 3, 6656));
        assert_eq!(read, Ok(Some(Request { file: 0, offset: 1536, bytes: 6656 })));
        assert_eq!(Format::Vscsi.decode(&vscsi(1, 3, 0)), Ok(None));
        let other = Format::Vscsi.decode(&vscsi(2, 3, 512));
        assert_eq!(other, Err(LineError::Version { found: 2 }));
        let far = Format::Vscsi.decode(&vscsi(1, 1 << 60, 512));
        assert_eq!(far, Err(LineError::TooFar));
        let short = Format::OracleGeneral.decode(&[0; 23]);
        assert_eq!(short, Err(LineError::Short { found: 23, wanted: 24 }));
        assert_eq!(Format::OracleGeneral.decode(&[0; 24]), Ok(None), "nothing is asked for");
        assert_eq!(Format::Pages.decode(&[]), Err(LineError::Kind));
    }
}
