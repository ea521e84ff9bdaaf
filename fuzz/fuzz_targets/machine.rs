//! The reader of machine files on any text, and on a good file one line of which is replaced by it: it
//! never panics, says where the fault is, and reads again what is written of a machine that it read.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run machine -s none -- -max_total_time=5`
#![no_main]

use libfuzzer_sys::fuzz_target;
use zonal_sim::machine::{Machine, TEMPLATE};

fn read(text: &str) {
    match Machine::parse(text, "fuzz.toml") {
        Ok(machine) => {
            assert_eq!(machine.check(), Ok(()));
            let written = machine.to_toml().expect("what was read can be written");
            assert_eq!(Machine::parse(&written, "written.toml"), Ok(machine));
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with("fuzz.toml:"), "no place: {said:?}");
            assert!(!said.contains(char::is_control), "a terminal would obey: {said:?}");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = core::str::from_utf8(bytes) else { return };
    read(text);
    // The first character chooses the line, of those that say something.
    let mut rest = text.chars();
    let Some(first) = rest.next() else { return };
    let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let mut lines: Vec<&str> = TEMPLATE.lines().filter(says).collect();
    let nth = first as usize % lines.len();
    lines[nth] = rest.as_str();
    read(&lines.join("\n"));
});
