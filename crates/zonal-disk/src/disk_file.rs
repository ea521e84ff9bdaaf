//! Disk files: the parameters of a disk in TOML, with the origin of each value in a comment beside
//! it. Some are built in.
//!
//! ```
//! use zonal_disk::disk_file::{Disk, Kind, builtins};
//!
//! for (name, disk) in builtins() {
//!     assert_eq!(name, disk.name);
//! }
//! let error = Disk::parse("name = 3", "mine.toml").expect_err("that is no disk");
//! assert!(error.to_string().starts_with("mine.toml:1:"));
//! ```

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use zonal_cfq::units::{Sector, Span};

use crate::device::Device;
use crate::hard_disk::HardDisk;
use crate::solid_state::SolidState;

/// A disk: what a disk file has.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// For command lines and file names: 1 to 64 of `a-z 0-9 _ -`.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Where its numbers are from.
    pub source: String,
    /// GiB, 0.0625 to 65536.
    pub capacity_gib: f64,
    /// The way to the host.
    pub interface: Interface,
    /// What it is inside: the table `hard_disk` or `solid_state`.
    pub kind: Kind,
}

/// The text of a disk file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    title: String,
    source: String,
    capacity_gib: f64,
    interface: Interface,
    hard_disk: Option<HardDiskFile>,
    solid_state: Option<SolidStateFile>,
}

/// The way to the host.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// MiB/s.
    pub mib_s: f64,
    /// Microseconds for each command, beyond moving its data.
    pub command_us: f64,
    /// Commands under way at once, 1 to 1024.
    pub depth: usize,
}

/// What it is inside.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Platters that turn.
    HardDisk(HardDiskFile),
    /// Flash.
    SolidState(SolidStateFile),
}

/// A hard disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardDiskFile {
    /// Revolutions a minute, 1000 to 30000.
    pub rpm: f64,
    /// Surfaces, 1 to 32.
    pub heads: u32,
    /// Milliseconds to the next cylinder, or to another head: what tracks are skewed by.
    pub track_ms: f64,
    /// Milliseconds over a third of all cylinders.
    pub average_ms: f64,
    /// Milliseconds over all cylinders.
    pub full_ms: f64,
    /// Milliseconds more before a write.
    pub write_settle_ms: f64,
    /// Zones from the outside in, 1 to 64.
    pub zones: Vec<Zone>,
    /// Segments of the track cache, 1 to 1024.
    pub segments: usize,
    /// KiB of a segment: how far it reads ahead; 0 is no track cache.
    pub segment_kib: u32,
    /// KiB of the write cache; 0: a write ends when it is on the medium.
    pub write_kib: u32,
    /// KiB written at once from the write cache.
    pub destage_kib: u32,
    /// Milliseconds without a command after which the write cache is written.
    pub rest_ms: f64,
    /// Milliseconds that a command waits at most for others that are nearer.
    pub patience_ms: f64,
}

/// Cylinders with as many sectors on each track.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Its part of the capacity; all together are 1.
    pub share: f64,
    /// Sectors of a track, 1 to 100000.
    pub sectors: u32,
}

/// A solid-state disk.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolidStateFile {
    /// Channels that work at once, 1 to 256.
    pub channels: usize,
    /// KiB of a page of flash.
    pub page_kib: u32,
    /// Microseconds to read a page.
    pub read_us: f64,
    /// Microseconds to program a page.
    pub program_us: f64,
    /// KiB of the write buffer.
    pub write_kib: u32,
    /// Microseconds for a flush, when all is programmed.
    pub flush_us: f64,
}

/// Why there is no disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskFileError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system says.
        why: String,
    },
    /// It is no TOML, or keys are missing, unknown, or of another kind.
    #[error("{file}:{line}:{column}: {why}")]
    Malformed {
        /// The file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What is wrong.
        why: String,
    },
    /// A value that no disk can have.
    #[error("{file}: {key} is {value}, but must be {wanted}")]
    Value {
        /// The file.
        file: String,
        /// The key.
        key: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        wanted: &'static str,
    },
}

/// Bytes that a disk file may have.
const LARGEST: u64 = 1 << 20;

impl Disk {
    /// The disk of a text; `origin` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`DiskFileError`].
    pub fn parse(text: &str, origin: &str) -> Result<Self, DiskFileError> {
        let text_of: Text = toml::from_str(text).map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let before = &text.as_bytes()[..at];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            let why = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            DiskFileError::Malformed { file: origin.to_owned(), line, column, why }
        })?;
        let value = |key, value: &str, wanted| {
            let (file, value) = (origin.to_owned(), value.to_owned());
            DiskFileError::Value { file, key, value, wanted }
        };
        let kind = match (text_of.hard_disk, text_of.solid_state) {
            (Some(file), None) => Kind::HardDisk(file),
            (None, Some(file)) => Kind::SolidState(file),
            (one, _) => {
                let there = if one.is_some() { "both" } else { "none" };
                return Err(value("the table", there, "one of hard_disk and solid_state"));
            }
        };
        let Text { name, title, source, capacity_gib, interface, .. } = text_of;
        let disk = Self { name, title, source, capacity_gib, interface, kind };
        match disk.flaw() {
            None => Ok(disk),
            Some((key, bad, wanted)) => Err(value(key, &bad, wanted)),
        }
    }

    /// The disk of a file.
    ///
    /// # Errors
    ///
    /// [`DiskFileError`].
    pub fn load(path: &Path) -> Result<Self, DiskFileError> {
        let file = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|it| it.take(LARGEST).read_to_string(&mut text));
        match read {
            Ok(_) => Self::parse(&text, &file),
            Err(error) => Err(DiskFileError::Unreadable { file, why: error.to_string() }),
        }
    }

    /// The sector behind its last.
    #[must_use]
    pub fn capacity(&self) -> Sector {
        Sector((self.capacity_gib * f64::from(1 << 21)) as u64)
    }

    /// A device of that kind, at rest.
    #[must_use]
    pub fn device(&self) -> Box<dyn Device + Send> {
        match &self.kind {
            Kind::HardDisk(file) => Box::new(HardDisk::new(file, &self.interface, self.capacity())),
            Kind::SolidState(file) => {
                Box::new(SolidState::new(file, &self.interface, self.capacity()))
            }
        }
    }

    /// Whether it has to seek.
    #[must_use]
    pub const fn is_rotational(&self) -> bool {
        matches!(self.kind, Kind::HardDisk(_))
    }

    /// The first value that is none.
    fn flaw(&self) -> Option<(&'static str, String, &'static str)> {
        let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(name) {
            return Some(("name", format!("{:?}", self.name), "1 to 64 of a-z 0-9 _ -"));
        }
        let interface = [
            ("capacity_gib", self.capacity_gib, 0.0625, 65536.0, "0.0625 to 65536"),
            ("interface.mib_s", self.interface.mib_s, 1.0, 1e6, "1 to 1000000"),
            ("interface.command_us", self.interface.command_us, 0.0, 1e6, "0 to 1000000"),
            ("interface.depth", self.interface.depth as f64, 1.0, 1024.0, "1 to 1024"),
        ];
        let inside = match &self.kind {
            Kind::HardDisk(file) => file.ranges(),
            Kind::SolidState(file) => file.ranges(),
        };
        // What is no number is in no range.
        let bad = interface
            .into_iter()
            .chain(inside)
            .find(|(_, value, least, most, _)| !(*least..=*most).contains(value));
        bad.map(|(key, value, _, _, wanted)| (key, value.to_string(), wanted))
    }
}

/// Key, value, least, most, and these in words.
type Range = (&'static str, f64, f64, f64, &'static str);

impl HardDiskFile {
    fn ranges(&self) -> Vec<Range> {
        let shares: f64 = self.zones.iter().map(|zone| zone.share).sum();
        let least = self.zones.iter().map(|zone| zone.sectors).min().unwrap_or(0);
        let most = self.zones.iter().map(|zone| zone.sectors).max().unwrap_or(0);
        let smallest = self.zones.iter().map(|zone| zone.share).fold(1.0, f64::min);
        vec![
            ("rpm", self.rpm, 1000.0, 30_000.0, "1000 to 30000"),
            ("heads", f64::from(self.heads), 1.0, 32.0, "1 to 32"),
            ("track_ms", self.track_ms, 0.01, 100.0, "0.01 to 100"),
            ("average_ms", self.average_ms, self.track_ms, 1000.0, "track_ms to 1000"),
            ("full_ms", self.full_ms, self.average_ms, 1000.0, "average_ms to 1000"),
            ("write_settle_ms", self.write_settle_ms, 0.0, 100.0, "0 to 100"),
            ("the number of zones", self.zones.len() as f64, 1.0, 64.0, "1 to 64"),
            ("the sum of all shares", shares, 0.999, 1.001, "1"),
            ("share", smallest, 1e-4, 1.0, "0.0001 to 1"),
            ("sectors", f64::from(least), 1.0, 1e5, "1 to 100000"),
            ("sectors", f64::from(most), 1.0, 1e5, "1 to 100000"),
            ("segments", self.segments as f64, 1.0, 1024.0, "1 to 1024"),
            ("segment_kib", f64::from(self.segment_kib), 0.0, 1e6, "0 to 1000000"),
            ("write_kib", f64::from(self.write_kib), 0.0, 1e7, "0 to 10000000"),
            ("destage_kib", f64::from(self.destage_kib), 1.0, 1e6, "1 to 1000000"),
            ("rest_ms", self.rest_ms, 0.0, 1e5, "0 to 100000"),
            ("patience_ms", self.patience_ms, 0.0, 1e6, "0 to 1000000"),
        ]
    }
}

impl SolidStateFile {
    fn ranges(&self) -> Vec<Range> {
        vec![
            ("channels", self.channels as f64, 1.0, 256.0, "1 to 256"),
            ("page_kib", f64::from(self.page_kib), 1.0, 1024.0, "1 to 1024"),
            ("read_us", self.read_us, 0.1, 1e6, "0.1 to 1000000"),
            ("program_us", self.program_us, 0.1, 1e6, "0.1 to 1000000"),
            ("write_kib", f64::from(self.write_kib), 0.0, 1e7, "0 to 10000000"),
            ("flush_us", self.flush_us, 0.0, 1e7, "0 to 10000000"),
        ]
    }
}

/// A time of a disk file.
pub(crate) fn millis(ms: f64) -> Span {
    Span((ms * 1e6).round() as u64)
}

/// Names and files of the disks that are built in.
macro_rules! disks {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../disks/", $name, ".toml")))),*]
    };
}

static DISKS: [(&str, &str); 5] =
    disks!["desktop_2014", "better_desktop_2014", "laptop_2014", "second_2014", "sata_ssd"];

/// The disk of that name.
///
/// ```
/// assert!(zonal_disk::builtin("desktop_2014").is_some_and(|disk| disk.is_rotational()));
/// assert!(zonal_disk::builtin("drum").is_none());
/// ```
#[must_use]
pub fn builtin(name: &str) -> Option<Disk> {
    builtins().find(|(known, _)| *known == name).map(|(_, disk)| disk)
}

/// All that are built in.
pub fn builtins() -> impl Iterator<Item = (&'static str, Disk)> {
    DISKS.iter().map(|(name, text)| match Disk::parse(text, &format!("disks/{name}.toml")) {
        Ok(disk) => (*name, disk),
        Err(error) => unreachable!("a built-in disk is well-formed: {error}"),
    })
}
