//! Machine files: reading and writing them.

use super::{Machine, Violation};
use core::ops::Range;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Bytes a machine file may have: those that are built in have 3,000.
const LARGEST: usize = 1 << 20;

/// Why a machine file could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// There is no such file, or it is not text, or may not be read.
    #[error("{file}: cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system says.
        why: String,
    },
    /// It has more bytes than any machine file, or no end.
    #[error("{file}: longer than {LARGEST} bytes, which no machine file is")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// What it says is not a machine.
    #[error("{file}:{line}:{column}: {flaw}")]
    Malformed {
        /// The file, or what else the text is from.
        file: String,
        /// The line of what is wrong, counted from 1: the key of a bad value, the header of the table
        /// in which something is missing; line 1 if a whole table is.
        line: usize,
        /// The column, counted from 1 in characters.
        column: usize,
        /// What is wrong.
        flaw: Flaw,
    },
}

/// What is wrong with the text of a machine file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// It is not TOML.
    #[error("not TOML: {0}")]
    Syntax(String),
    /// A key is missing, or unknown, or its value is not of the kind that belongs there.
    #[error("{0}")]
    Shape(String),
    /// A value is of the right kind, but no machine can have it.
    #[error(transparent)]
    Value(#[from] Violation),
}

impl Machine {
    /// The machine that the text of a machine file describes; `origin` is what errors call the text.
    ///
    /// # Errors
    /// [`MachineError::Malformed`] with the place of the first flaw.
    pub fn parse(text: &str, origin: &str) -> Result<Self, MachineError> {
        let malformed = |at: usize, flaw: Flaw| {
            let (line, column) = place(text, at);
            MachineError::Malformed { file: origin.to_owned(), line, column, flaw }
        };
        // Two passes: syntax, with the place of every key, then the values.
        let keys = DeTable::parse(text).map_err(|error| {
            malformed(start(error.span()), Flaw::Syntax(one_line(error.message())))
        })?;
        let machine: Self = toml::from_str(text).map_err(|error| {
            malformed(start(error.span()), Flaw::Shape(one_line(error.message())))
        })?;
        match machine.check() {
            Ok(()) => Ok(machine),
            Err(violation) => {
                let at = find(keys.get_ref(), &violation).map_or(0, |span| span.start);
                Err(malformed(at, Flaw::Value(violation)))
            }
        }
    }

    /// The machine of a machine file.
    ///
    /// # Errors
    /// [`MachineError::Unreadable`] if the file cannot be read as text, [`MachineError::TooLarge`] if
    /// it has more than 1 MiB, and those of [`Machine::parse`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self, MachineError> {
        let file = path.as_ref().display().to_string();
        let mut bytes = Vec::new();
        // A device has any length.
        let read = File::open(path)
            .and_then(|input| input.take(LARGEST as u64 + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            return Err(MachineError::Unreadable { file, why: error.to_string() });
        }
        if bytes.len() > LARGEST {
            return Err(MachineError::TooLarge { file });
        }
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&text, &file),
            Err(error) => Err(MachineError::Unreadable { file, why: error.to_string() }),
        }
    }

    /// A machine file from which [`Machine::parse`] makes the same machine.
    ///
    /// # Errors
    /// [`MachineError::Malformed`] if no file could: a value is one that no machine can have. It
    /// names the line that the file would have had, and the machine's name in place of a file's.
    pub fn to_toml(&self) -> Result<String, MachineError> {
        let text = toml::to_string(self).map_err(|error| MachineError::Malformed {
            file: self.name.clone(),
            line: 1,
            column: 1,
            flaw: Flaw::Shape(error.to_string()),
        })?;
        Self::parse(&text, &self.name)?;
        Ok(text)
    }
}

/// Where the value at fault is: its key, or the element of the list.
fn find(root: &DeTable<'_>, violation: &Violation) -> Option<Range<usize>> {
    let table = match violation.table {
        Some(name) => match entry(root, name)?.1 {
            DeValue::Table(table) => table,
            _ => return None,
        },
        None => root,
    };
    let (key, value) = entry(table, violation.key)?;
    let element = match (violation.element, value) {
        (Some(index), DeValue::Array(list)) => list.get(index).map(toml::Spanned::span),
        _ => None,
    };
    element.or(Some(key))
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<(Range<usize>, &'a DeValue<'i>)> {
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    Some((key.span(), value.get_ref()))
}

fn start(span: Option<Range<usize>>) -> usize {
    span.map_or(0, |span| span.start)
}

/// Line and column of a byte, both counted from 1, the column in characters.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// A message of the TOML crate as part of a sentence. It quotes the file, whose control characters a
/// terminal would obey.
fn one_line(message: &str) -> String {
    let message = message.trim().replace('\n', ", ");
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    message.chars().map(shown).collect()
}
