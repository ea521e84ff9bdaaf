//! Sizes and times as people write them.
//!
//! ```
//! use zonal_cli::size::{human, parse_size};
//!
//! assert_eq!(parse_size("4G").map(|bytes| human(bytes as u64)).as_deref(), Ok("4 GiB"));
//! ```

use core::time::Duration;

/// Splits a number from its unit.
fn split(text: &str) -> Result<(f64, String), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("`{text}` does not start with a number"))?;
    Ok((number, unit.trim().to_ascii_lowercase()))
}

/// Parses a size with an optional binary unit.
///
/// ```
/// assert_eq!(zonal_cli::size::parse_size("1.5G"), Ok(3 << 29));
/// assert_eq!(zonal_cli::size::parse_size("256MiB"), Ok(256 << 20));
/// assert!(zonal_cli::size::parse_size("many").is_err());
/// ```
///
/// # Errors
///
/// A text that says what is wrong with `text`.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = split(text)?;
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(format!("`{unit}` is no unit of size; K, M, G and T are")),
    };
    let bytes = number * (1u64 << shift) as f64;
    // Above 2^53 the product is rounded, which is far more memory than there is anyway.
    if bytes >= 1.0 && bytes < usize::MAX as f64 {
        Ok(bytes as usize)
    } else {
        Err(format!("`{text}` is no size a machine can have"))
    }
}

/// Parses a time: seconds, or with `ms`, `s` or `m`.
///
/// ```
/// use core::time::Duration;
///
/// assert_eq!(zonal_cli::size::parse_duration("500ms"), Ok(Duration::from_millis(500)));
/// assert!(zonal_cli::size::parse_duration("0").is_err());
/// ```
///
/// # Errors
///
/// A text that says what is wrong with `text`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit.as_str() {
        "" | "s" => number,
        "ms" => number / 1000.0,
        "m" | "min" => number * 60.0,
        _ => return Err(format!("`{unit}` is no unit of time; ms, s and m are")),
    };
    if seconds > 0.0 && seconds <= 86_400.0 {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("`{text}` is not between nothing and a day"))
    }
}

/// Writes a byte count the way people say it: `4 GiB`, `256 MiB`, `1.5 GiB`.
///
/// ```
/// assert_eq!(zonal_cli::size::human(3 << 29), "1.5 GiB");
/// ```
#[must_use]
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(human(4 << 30), "4 GiB");
        assert_eq!(human(1000), "1000 B");
        assert_eq!(human(1 << 50), "1024 TiB");
    }

    #[test]
    fn sizes_and_times_are_refused_with_a_reason() {
        assert!(parse_size("4X").is_err_and(|why| why.contains("unit")));
        assert!(parse_size("0").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("1.2.3").is_err());
        assert!(parse_size("99999999999T").is_err());
        assert!(parse_duration("1h").is_err_and(|why| why.contains("unit")));
        assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
    }
}
