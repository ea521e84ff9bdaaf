//! The machines of the sources, and one that was calibrated.

use super::Machine;

/// Defines the list from the names, each of which is also the name of its file.
macro_rules! machines {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../machines/", $name, ".toml")))),*]
    };
}

/// Names and files, in the order of the sources. The last is as `zonal calibrate` wrote it.
static MACHINES: [(&str, &str); 7] = machines![
    "skylake_2s_112cpu",
    "skylake_2s_112cpu_64g",
    "skylake_4s_768g",
    "broadwell_2s_40cpu",
    "desktop_8cpu_4g",
    "intel_2s_224cpu",
    "xeon_vm_2cpu",
];

/// A machine file to begin one's own with: every field has a comment that says what it is.
///
/// ```
/// use zonal_sim::machine::{Machine, TEMPLATE};
/// assert_eq!(Machine::parse(TEMPLATE, "template.toml").expect("it parses").topology.cpus(), 112);
/// ```
pub const TEMPLATE: &str = include_str!("../../machines/template.toml");

/// The built-in machine of that name.
///
/// ```
/// use zonal_sim::machine;
/// assert_eq!(machine::builtin("desktop_8cpu_4g").expect("it is built in").topology.cpus(), 8);
/// assert_eq!(machine::builtin("pdp11"), None);
/// ```
#[must_use]
pub fn builtin(name: &str) -> Option<Machine> {
    MACHINES.iter().find(|(known, _)| *known == name).map(|(name, text)| read(name, text))
}

/// All built-in machines with their names, in the order of the sources.
///
/// ```
/// for (name, machine) in zonal_sim::machine::builtins() {
///     assert_eq!(name, machine.name);
/// }
/// ```
pub fn builtins() -> impl Iterator<Item = (&'static str, Machine)> {
    MACHINES.iter().map(|(name, text)| (*name, read(name, text)))
}

/// Reads a file that the tests have read before.
fn read(name: &str, text: &str) -> Machine {
    match Machine::parse(text, &format!("machines/{name}.toml")) {
        Ok(machine) => machine,
        Err(error) => unreachable!("a built-in machine is well-formed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documented fields of the structs in the source: name and documentation.
    fn documented() -> Vec<(String, String)> {
        let source = include_str!("../machine.rs").split("impl Topology").next().unwrap_or("");
        let mut fields = Vec::new();
        let mut words: Vec<String> = Vec::new();
        for line in source.lines().filter_map(|line| line.strip_prefix("    ")) {
            if let Some(text) = line.strip_prefix("/// ") {
                words.extend(text.split_whitespace().map(str::to_owned));
            } else if let Some((name, _)) =
                line.strip_prefix("pub ").and_then(|it| it.split_once(':'))
            {
                fields.push((name.to_owned(), core::mem::take(&mut words).join(" ")));
            }
        }
        fields
    }

    #[test]
    fn the_template_says_of_each_field_what_the_source_says() {
        let mut comment: Vec<&str> = Vec::new();
        let mut described = Vec::new();
        for line in TEMPLATE.lines() {
            if let Some(text) = line.strip_prefix("# ") {
                comment.extend(text.split_whitespace());
            } else {
                let name = line.split_once(" = ").map(|(name, _)| name.to_owned());
                described.extend(name.map(|name| (name, comment.join(" "))));
                comment.clear();
            }
        }
        // Those that are tables.
        let tables = ["topology", "clock", "cache", "cost", "kernel"];
        let fields: Vec<_> =
            documented().into_iter().filter(|(name, _)| !tables.contains(&&**name)).collect();
        assert!(fields.len() > 40, "{fields:?}");
        assert_eq!(described, fields);
    }
}
