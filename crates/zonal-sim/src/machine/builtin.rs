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
