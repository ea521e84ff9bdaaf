//! Reads a trace: as lines or as records, into the pages or the objects that it asks for.
//!
//! ```
//! use zonal_cachetrace::read::Accesses;
//! use zonal_cachetrace::trace::Request;
//! let mut pages = Accesses::new(Some(4096));
//! pages.add(Request { file: 0, offset: 0, bytes: 10_000 });
//! pages.add(Request { file: 0, offset: 4096, bytes: 1 });
//! assert_eq!(pages.trace().accesses, [0, 1, 2, 1]);
//! assert_eq!(pages.trace().unique, 3);
//! // An object is what begins there, as large as it was last.
//! let mut objects = Accesses::new(None);
//! objects.add(Request { file: 0, offset: 0, bytes: 10_000 });
//! objects.add(Request { file: 0, offset: 0, bytes: 700 });
//! assert_eq!((objects.trace().accesses, objects.trace().sizes), (&[0, 0][..], &[700][..]));
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use zonal_cli::bar::Bar;
use zonal_cli::error::LabError;
use zonal_cli::interrupt;

use crate::error::CacheTraceError;
use crate::simulate::Trace;
use crate::trace::{Format, LineError, Request};

/// Accesses that a trace may have.
const MOST: u64 = 1 << 30;
/// Bytes that a line may have, without its end. The longest of a format has some hundred.
pub const LONGEST_LINE: u64 = 64 << 10;
/// Lines or records between two looks at the bar.
const OFTEN: usize = 1 << 14;

/// What a trace asks for, in its order, numbered as it came.
#[derive(Clone, Debug)]
pub struct Accesses {
    /// Bytes of a page; `None` for objects.
    page: Option<u64>,
    numbers: HashMap<(u64, u64), u32>,
    accesses: Vec<u32>,
    sizes: Vec<u64>,
}

impl Accesses {
    /// None yet; of pages of that many bytes, or of objects, each of which is what begins at an offset.
    #[must_use]
    pub fn new(page: Option<u64>) -> Self {
        Self { page, numbers: HashMap::new(), accesses: Vec::new(), sizes: Vec::new() }
    }

    /// Adds what a request asks for.
    pub fn add(&mut self, request: Request) {
        match self.page {
            Some(page) => request.pages(page).for_each(|index| self.access((request.file, index))),
            None => {
                self.access((request.file, request.offset));
                self.sizes.resize(self.numbers.len(), 0);
                let number = self.accesses[self.accesses.len() - 1];
                self.sizes[number as usize] = request.bytes;
            }
        }
    }

    fn access(&mut self, what: (u64, u64)) {
        let new = self.numbers.len() as u32;
        self.accesses.push(*self.numbers.entry(what).or_insert(new));
    }

    /// What to count the hits of.
    #[must_use]
    pub fn trace(&self) -> Trace<'_> {
        Trace { accesses: &self.accesses, unique: self.numbers.len(), sizes: &self.sizes }
    }

    /// How many accesses a request would add.
    fn more(&self, request: Request) -> u64 {
        self.page.map_or(1, |page| request.pages(page).end - request.pages(page).start)
    }
}

/// A trace that was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// How it is written.
    pub format: Format,
    /// How many requests it has.
    pub requests: u64,
    /// What they ask for.
    pub accesses: Accesses,
}

struct Loading<'a> {
    path: &'a Path,
    bar: Bar,
    /// Of the file; 0 of what is no file: then there is no more to show than that it is read.
    all: u64,
    bytes: u64,
    number: usize,
    requests: u64,
    page: Option<u64>,
    accesses: Accesses,
}

impl Loading<'_> {
    /// Goes on to the next line or record.
    fn next(&mut self, bytes: usize) -> Result<(), CacheTraceError> {
        self.number += 1;
        self.bytes += bytes as u64;
        if self.number.is_multiple_of(OFTEN) {
            self.bar.at(self.bytes, self.all, "reading");
        }
        if interrupt::is_requested() {
            return Err(LabError::Interrupted.into());
        }
        Ok(())
    }

    fn add(&mut self, request: Request, format: Format) -> Result<(), CacheTraceError> {
        if self.requests == 0 && format.counts_pages() {
            self.accesses = Accesses::new(self.page.map(|_| 1));
        }
        self.requests += 1;
        if self.accesses.accesses.len() as u64 + self.accesses.more(request) > MOST {
            return Err(CacheTraceError::TooLong { path: self.path.into(), most: MOST });
        }
        self.accesses.add(request);
        Ok(())
    }

    fn unreadable(&self, source: std::io::Error) -> CacheTraceError {
        CacheTraceError::Unreadable { path: self.path.into(), source }
    }

    /// Reads the next line into `bytes`, and has it without its end; `None` if there is none.
    fn line<'a>(
        &mut self,
        file: &mut impl BufRead,
        bytes: &'a mut Vec<u8>,
    ) -> Result<Option<&'a str>, CacheTraceError> {
        bytes.clear();
        // What is no text may be as long as the file; an end has two bytes at most.
        let read = file.take(LONGEST_LINE + 2).read_until(b'\n', bytes);
        let read = read.map_err(|error| self.unreadable(error))?;
        if read == 0 {
            return Ok(None);
        }
        self.next(read)?;
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() as u64 > LONGEST_LINE {
            let (path, number) = (self.path.into(), self.number);
            let source = LineError::TooLong { most: LONGEST_LINE };
            return Err(CacheTraceError::Line { path, number, source });
        }
        let text = str::from_utf8(line)
            .map_err(|error| self.unreadable(std::io::Error::new(ErrorKind::InvalidData, error)))?;
        Ok(Some(text))
    }

    fn lines(&mut self, file: File, mut format: Option<Format>) -> Result<Format, CacheTraceError> {
        let (mut file, mut bytes) = (BufReader::new(file), Vec::new());
        while let Some(line) = self.line(&mut file, &mut bytes)? {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, number) = (self.path, self.number);
            let wrong = |source| CacheTraceError::Line { path: path.into(), number, source };
            let Some(known) = format.or_else(|| Format::guess(line)) else {
                // The head of a table, or of a log.
                if number < 10 {
                    continue;
                }
                return Err(wrong(LineError::Unknown));
            };
            let parsed = known.parse(line);
            // The head of a table whose format was named.
            if parsed.is_err() && self.requests == 0 && number == 1 {
                continue;
            }
            format = Some(known);
            if let Some(request) = parsed.map_err(wrong)? {
                self.add(request, known)?;
            }
        }
        format.ok_or_else(|| CacheTraceError::Empty { path: self.path.into() })
    }

    fn records(&mut self, file: File, format: Format, len: usize) -> Result<(), CacheTraceError> {
        let mut file = BufReader::new(file);
        let mut record = Vec::with_capacity(len);
        loop {
            record.clear();
            let read = file.by_ref().take(len as u64).read_to_end(&mut record);
            if read.map_err(|error| self.unreadable(error))? == 0 {
                return Ok(());
            }
            self.next(record.len())?;
            let (path, number) = (self.path, self.number);
            let wrong = |source| CacheTraceError::Record { path: path.into(), number, source };
            if let Some(request) = format.decode(&record).map_err(wrong)? {
                self.add(request, format)?;
            }
        }
    }
}

/// Reads a trace into pages of `page` bytes, or into objects. `format` `None` is a text, of the format of its first
/// request. `bar` shows how far it is.
///
/// # Errors
/// [`CacheTraceError`] says what cannot be read, or that there is nothing.
pub fn load(
    path: &Path,
    format: Option<Format>,
    page: Option<u64>,
    bar: impl FnOnce(u64) -> Bar,
) -> Result<Loaded, CacheTraceError> {
    let unreadable = |source| CacheTraceError::Unreadable { path: path.into(), source };
    let file = File::open(path).map_err(unreadable)?;
    let all = file.metadata().map_or(0, |it| it.len());
    let accesses = Accesses::new(page);
    let (bytes, number, requests) = (0, 0, 0);
    let bar = bar(all);
    let mut loading = Loading { path, bar, all, bytes, number, requests, page, accesses };
    let format = match format.and_then(|format| Some((format, format.record()?))) {
        Some((format, len)) => loading.records(file, format, len).map(|()| format)?,
        None => loading.lines(file, format)?,
    };
    let Loading { requests, accesses, .. } = loading;
    if accesses.accesses.is_empty() {
        return Err(CacheTraceError::Empty { path: path.into() });
    }
    Ok(Loaded { format, requests, accesses })
}
