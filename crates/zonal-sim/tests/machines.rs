//! Machine files: the built-in ones, reading, writing, and what is said about malformed ones.

use std::collections::HashSet;
use zonal_sim::machine::{self, Flaw, Machine, MachineError, Topology};

const NAMES: [&str; 7] = [
    "skylake_2s_112cpu",
    "skylake_2s_112cpu_64g",
    "skylake_4s_768g",
    "broadwell_2s_40cpu",
    "desktop_8cpu_4g",
    "intel_2s_224cpu",
    "xeon_vm_2cpu",
];

/// A machine file of which each case of the table breaks one line.
const GOOD: &str = include_str!("data/small.toml");

/// The line, counted from 1, that starts with `start`.
fn line_of(text: &str, start: &str) -> usize {
    let found = text.lines().position(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no line starts with {start:?}")) + 1
}

/// The good file with one line replaced.
fn with(start: &str, replacement: &str) -> String {
    let line = line_of(GOOD, start);
    let lines: Vec<&str> = GOOD
        .lines()
        .enumerate()
        .map(|(index, text)| if index + 1 == line { replacement } else { text })
        .collect();
    lines.join("\n")
}

fn malformed(text: &str) -> (usize, usize, Flaw, String) {
    let error = Machine::parse(text, "some.toml").expect_err("it is malformed");
    let message = error.to_string();
    match error {
        MachineError::Malformed { file, line, column, flaw } => {
            assert_eq!(file, "some.toml");
            assert!(message.starts_with(&format!("some.toml:{line}:{column}: ")), "{message}");
            assert!(!message.contains('\n'), "{message}");
            (line, column, flaw, message)
        }
        other => panic!("not a malformed file: {other}"),
    }
}

#[test]
fn the_good_file_is_good() {
    let machine = Machine::parse(GOOD, "some.toml").expect("it is well-formed");
    assert_eq!(machine.name, "small");
    assert_eq!(machine.topology.cpus(), 16);
    assert_eq!(machine.clock.turbo_ghz, [3.0, 2.5, 2.2]);
    assert_eq!(machine.cost.bandwidth_gib_s, 40.5);
    assert_eq!(machine.check(), Ok(()));
}

#[test]
fn built_in_machines_are_those_of_the_sources_and_a_calibrated_one() {
    let built_in: Vec<_> = machine::builtins().collect();
    let names: Vec<_> = built_in.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, NAMES);
    for (name, machine) in &built_in {
        assert_eq!(*name, machine.name);
        assert_eq!(machine::builtin(name).as_ref(), Some(machine));
    }
    assert_eq!(machine::builtin("skylake"), None);
    assert_eq!(machine::builtin(""), None);

    let shape = |name: &str| {
        let topology = machine::builtin(name).expect("it is built in").topology;
        (topology.sockets, topology.cores(), topology.cpus(), topology.memory_gib)
    };
    assert_eq!(shape("skylake_2s_112cpu"), (2, 56, 112, 128.0));
    assert_eq!(shape("skylake_2s_112cpu_64g"), (2, 56, 112, 64.0));
    assert_eq!(shape("skylake_4s_768g"), (4, 96, 192, 768.0));
    assert_eq!(shape("broadwell_2s_40cpu"), (2, 20, 40, 128.0));
    assert_eq!(shape("desktop_8cpu_4g"), (1, 4, 8, 4.0));
    assert_eq!(shape("intel_2s_224cpu"), (2, 112, 224, 256.0));
    assert_eq!(shape("xeon_vm_2cpu"), (1, 2, 2, 23.5));
}

#[test]
fn distances_of_built_in_machines_are_ordered() {
    for (name, machine) in machine::builtins() {
        let cost = machine.cost;
        let near = [cost.private, cost.shared, cost.near, cost.memory];
        assert!(near.is_sorted(), "{name}: {near:?}");
        // What a prefetcher has may still be on its way.
        let streamed = [cost.private, cost.streamed, cost.memory];
        assert!(streamed.is_sorted(), "{name}: {streamed:?}");
        if machine.topology.sockets > 1 {
            assert!(cost.near < cost.far && cost.memory < cost.memory_far, "{name}");
        }
        assert!(machine.clock.turbo_ghz.is_sorted_by(|a, b| a >= b), "{name}");
        assert!(machine.clock.speed(u32::MAX) >= 1.0, "{name}");
    }
}

#[test]
fn the_smaller_skylake_differs_in_its_memory_and_the_way_to_it_alone() {
    let large = machine::builtin("skylake_2s_112cpu").expect("it is built in");
    let mut small = machine::builtin("skylake_2s_112cpu_64g").expect("it is built in");
    small.topology.memory_gib = large.topology.memory_gib;
    small.cost.bandwidth_gib_s = large.cost.bandwidth_gib_s;
    small.name.clone_from(&large.name);
    small.title.clone_from(&large.title);
    small.source.clone_from(&large.source);
    assert_eq!(small, large);
}

#[test]
fn what_is_written_reads_back_the_same() {
    for (name, machine) in machine::builtins() {
        let text = machine.to_toml().expect("its values are within their ranges");
        assert_eq!(Machine::parse(&text, name), Ok(machine), "{text}");
    }
    // Numbers without a short decimal form, and characters with a meaning in TOML.
    let mut odd = Machine::parse(GOOD, "some.toml").expect("it is well-formed");
    odd.cost.near = 1.0 / 3.0;
    odd.cost.private = 0.1 + f64::EPSILON;
    odd.kernel.wake = 1e9;
    odd.clock.turbo_ghz = vec![0.1 + 0.2];
    odd.title = "a \"quoted\" \\ title # of [one] 'line' = \u{e9}\u{1f600}".to_owned();
    odd.source = "'''\n[two] # 'lines'\n\t\"\"\"".to_owned();
    let text = odd.to_toml().expect("its values are within their ranges");
    assert_eq!(Machine::parse(&text, "odd.toml"), Ok(odd), "{text}");
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let mut machine = Machine::parse(GOOD, "some.toml").expect("it is well-formed");
    for wrong in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        machine.cost.near = wrong;
        let error = machine.to_toml().expect_err("no machine has that cost").to_string();
        assert!(error.starts_with("small:") && error.contains("near is "), "{error}");
        let violation = machine.check().expect_err("no machine has that cost");
        assert_eq!((violation.table, violation.key), (Some("cost"), "near"));
    }
}

#[test]
fn bad_values_are_named_with_their_line_and_range() {
    // The line, what it becomes, what is said of it.
    let cases = [
        ("name", "name = \"\"", "name is \"\", but must be 1 to 64 of a-z, 0-9, _ and -"),
        ("name", "name = \"Small\"", "name is \"Small\", but"),
        ("name", "name = \"a/b\"", "name is \"a/b\", but"),
        ("name", "name = \"-v\"", "name is \"-v\", but"),
        ("title", "title = ' '", "title is empty, but must be a text"),
        ("source", "source = ''", "source is empty, but must be a text"),
        (
            "title",
            "title = \"\\u001b[2J\"",
            "title is a text with '\\u{1b}', but must be a text without control characters",
        ),
        ("title", "title = \"one\\ntwo\"", "title is a text with '\\n', but must be a text"),
        ("title", "title = \"\\u009b2J\"", "title is a text with '\\u{9b}'"),
        (
            "source",
            "source = \"a\\n\\tb\\r\\nc\\rd\"",
            "is a text with '\\r', but must be a text without control characters but newlines and tabs",
        ),
        ("sockets", "sockets = 0", "sockets is 0, but must be 1 to 8"),
        ("sockets", "sockets = 9", "sockets is 9, but must be 1 to 8"),
        ("cores_per", "cores_per_socket = 0", "cores_per_socket is 0, but must be 1 to 64"),
        (
            "cores_per",
            "cores_per_socket = 65",
            "is 65, but must be 1 to 64: 2 sockets, and at most 128 cores",
        ),
        ("threads", "threads_per_core = 3", "threads_per_core is 3, but must be 1 to 2"),
        ("memory_gib", "memory_gib = 0", "memory_gib is 0, but must be 0.0625 to 65536"),
        ("memory_gib", "memory_gib = nan", "memory_gib is NaN, but must be"),
        ("nominal", "nominal_ghz = -2.0", "nominal_ghz is -2, but must be 0.1 to 10"),
        ("nominal", "nominal_ghz = 2200", "nominal_ghz is 2200, but must be 0.1 to 10"),
        (
            "    2.2]",
            "    2.2, 2.1, 2.0]",
            "turbo_ghz is a list of 5, but must be a list of 1 to 4",
        ),
        ("    2.2]", "    22]", "element 3 of turbo_ghz is 22, but must be 0.1 to 10"),
        ("sibling", "sibling_share = 0.4", "sibling_share is 0.4, but must be 0.5 to 1"),
        ("sibling", "sibling_share = 1.1", "sibling_share is 1.1, but must be 0.5 to 1"),
        ("private_kib", "private_kib = 0", "private_kib is 0, but must be 1 to"),
        ("shared_kib", "shared_kib = 0", "shared_kib is 0, but must be 1 to"),
        ("struct", "struct_page_bytes = 0", "struct_page_bytes is 0, but must be a multiple of 64"),
        (
            "struct",
            "struct_page_bytes = 56",
            "struct_page_bytes is 56, but must be a multiple of 64",
        ),
        ("private =", "private = 0", "private is 0, but must be 0.1 to 1000000000"),
        ("far", "far = inf", "far is inf, but must be 0.1 to 1000000000"),
        ("memory_far", "memory_far = nan", "memory_far is NaN, but must be 0.1 to"),
        ("lock =", "lock = -20", "lock is -20, but must be 0.1 to"),
        ("bandwidth", "bandwidth_gib_s = 0.0", "bandwidth_gib_s is 0, but must be 0.2 to 1000000"),
        ("bandwidth", "bandwidth_gib_s = 1e-300", "but must be 0.2 to 1000000"),
        ("access", "access = 1e-9", "access is 0.000000001, but must be 0.1 to"),
        ("fault", "fault = 1e10", "fault is 10000000000, but must be 0.1 to 1000000000"),
        ("lru_batch", "lru_batch = 0", "lru_batch is 0, but must be 1 to"),
        ("spread", "spread = 1.5", "spread is 1.5, but must be 0 to 1"),
        ("wake", "wake = -0.0", "wake is -0, but must be 0.1 to"),
    ];
    for (start, replacement, reason) in cases {
        let (line, column, flaw, message) = malformed(&with(start, replacement));
        assert!(message.contains(reason), "{replacement}: {message}");
        let Flaw::Value(violation) = flaw else { panic!("{replacement}: {message}") };
        // A list is named at its key, which is the line before its last element.
        let of_list = violation.key == "turbo_ghz" && violation.element.is_none();
        let expected = if of_list { line_of(GOOD, "turbo_ghz") } else { line_of(GOOD, start) };
        let expected_column = if violation.element.is_some() { 5 } else { 1 };
        assert_eq!((line, column), (expected, expected_column), "{replacement}: {message}");
    }
}

/// Every number of the file is checked: none may be infinite or below zero.
#[test]
fn no_number_goes_unchecked() {
    let mut numbers = 0;
    for text in GOOD.lines() {
        let Some((key, value)) = text.split_once(" = ") else { continue };
        if value.starts_with('"') || value.starts_with('[') {
            continue;
        }
        numbers += 1;
        for wrong in ["-1", "0", "inf"] {
            if (key, wrong) == ("spread", "0") {
                continue;
            }
            let replaced = GOOD.replace(&format!("\n{text}\n"), &format!("\n{key} = {wrong}\n"));
            assert_ne!(replaced, GOOD);
            let (line, _, flaw, message) = malformed(&replaced);
            assert_eq!(line, line_of(GOOD, text), "{key} = {wrong}: {message}");
            assert!(!matches!(flaw, Flaw::Syntax(_)), "{key} = {wrong}: {message}");
        }
    }
    assert_eq!(numbers, 38);
}

#[test]
fn a_turbo_is_at_most_ten_times_the_nominal_clock() {
    let (line, column, _, message) = malformed(&with("nominal", "nominal_ghz = 0.26"));
    assert!(message.contains("element 1 of turbo_ghz is 3, but must be 0.1 to 2.6"), "{message}");
    assert_eq!((line, column), (line_of(GOOD, "turbo_ghz"), 14));
    assert!(Machine::parse(&with("nominal", "nominal_ghz = 0.3"), "some.toml").is_ok());
}

#[test]
fn an_empty_turbo_list_is_named_at_its_key() {
    let text = GOOD.replace("turbo_ghz = [3.0, 2.5,\n    2.2]", "turbo_ghz = []");
    let (line, _, _, message) = malformed(&text);
    assert_eq!(line, line_of(GOOD, "turbo_ghz"));
    assert!(
        message.contains("turbo_ghz is a list of 0, but must be a list of 1 to 4"),
        "{message}"
    );
}

#[test]
fn flaws_of_shape_are_named_with_their_line() {
    let cases = [
        ("far", "farther = 200", "unknown field `farther`"),
        ("sockets", "sockets = \"two\"", "invalid type: string \"two\""),
        ("sockets", "sockets = 2.5", "invalid type: floating point `2.5`"),
        ("sockets", "sockets = -1", "invalid value: integer `-1`"),
        ("sockets", "sockets = 70000", "invalid value: integer `70000`"),
        ("fault", "fault = [1]", "invalid type"),
        ("[cost]", "[costs]", "unknown field `costs`"),
        ("far", "\"\\u001b[2J\" = 200", "unknown field `\\u{1b}[2J`"),
        ("far", "far = \"\\u001b[2J\"", "string \"\\u{1b}[2J\""),
    ];
    for (start, replacement, reason) in cases {
        let (line, _, flaw, message) = malformed(&with(start, replacement));
        assert!(matches!(flaw, Flaw::Shape(_)), "{replacement}: {message}");
        assert!(message.contains(reason), "{replacement}: {message}");
        assert_eq!(line, line_of(GOOD, start), "{replacement}: {message}");
    }
}

#[test]
fn what_is_missing_is_named_with_its_table() {
    for (start, table) in [
        ("memory_gib", "[topology]"),
        ("nominal_ghz", "[clock]"),
        ("private_kib", "[cache]"),
        ("bandwidth_gib_s", "[cost]"),
        ("wake", "[kernel]"),
    ] {
        let key = GOOD.lines().find(|line| line.starts_with(start)).expect("it is there");
        let key = key.split(' ').next().expect("it has a key");
        let text = with(start, "");
        let (line, _, flaw, message) = malformed(&text);
        assert!(matches!(flaw, Flaw::Shape(_)), "{message}");
        assert!(message.contains(&format!("missing field `{key}`")), "{message}");
        assert_eq!(line, line_of(GOOD, table), "{message}");
    }
    let (line, column, _, message) = malformed(&with("title", ""));
    assert!(message.contains("missing field `title`"), "{message}");
    assert_eq!((line, column), (1, 1));
    let whole_table = GOOD.split("[kernel]").next().expect("there is one");
    let (line, column, _, message) = malformed(whole_table);
    assert!(message.contains("missing field `kernel`"), "{message}");
    assert_eq!((line, column), (1, 1));
    assert!(malformed("").3.contains("missing field"));
}

#[test]
fn flaws_of_syntax_are_named_with_their_place() {
    let cases = [
        ("sockets", "sockets = "),
        ("sockets", "sockets : 2"),
        ("shared_kib", "shared_kib = 8192 oops"),
        ("far", "near = 100"),
        ("[cost]", "[cache]"),
        ("title", "title = \"open"),
    ];
    for (start, replacement) in cases {
        let (line, column, flaw, message) = malformed(&with(start, replacement));
        assert!(matches!(flaw, Flaw::Syntax(_)), "{replacement}: {message}");
        assert!(message.contains("not TOML: "), "{replacement}: {message}");
        assert_eq!(line, line_of(GOOD, start), "{replacement}: {message}");
        // Where in the line is the TOML crate's to say.
        assert!((1..=replacement.len() + 1).contains(&column), "{replacement}: {message}");
    }
}

#[test]
fn columns_count_characters() {
    let text = with("title", "title = \"\u{e9}\u{e9}\u{1f600}\" oops");
    let (line, column, _, message) = malformed(&text);
    assert_eq!((line, column), (2, 15), "{message}");
}

#[test]
fn tables_may_be_written_in_line_and_lines_end_as_on_windows() {
    let inline =
        GOOD.replace("[cache]\nprivate_kib = 512\nshared_kib = 8192\nstruct_page_bytes = 64\n", "");
    let inline = format!(
        "cache = {{ private_kib = 512, shared_kib = 0, struct_page_bytes = 64 }}\n{inline}"
    );
    let (line, column, _, message) = malformed(&inline);
    assert!(message.contains("shared_kib is 0"), "{message}");
    assert_eq!((line, column), (1, 30), "{message}");

    let windows = with("sibling", "sibling_share = 0").replace('\n', "\r\n");
    let (line, column, _, message) = malformed(&windows);
    assert_eq!((line, column), (line_of(GOOD, "sibling"), 1), "{message}");
}

/// Whatever is cut off or changed, there is an answer and no panic.
#[test]
fn damaged_files_do_not_panic() {
    let whole = machine::builtin("broadwell_2s_40cpu").expect("it is built in").to_toml();
    let whole = whole.expect("its values are within their ranges") + "# \u{e9}";
    let mut bad = 0;
    for end in 0..=whole.len() {
        if let Some(part) = whole.get(..end) {
            bad += u32::from(Machine::parse(part, "cut.toml").is_err());
        }
    }
    assert!(bad > 1000, "{bad}");
    for at in 0..whole.len() {
        for byte in *b"\0\n\"[]{=-9." {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes)
                && let Ok(machine) = Machine::parse(&text, "changed.toml")
            {
                assert_eq!(machine.check(), Ok(()));
            }
        }
    }
}

#[test]
fn a_file_is_loaded_or_called_unreadable() {
    let path = std::env::temp_dir().join(format!("zonal-machine-{}.toml", std::process::id()));
    std::fs::write(&path, GOOD).expect("the temporary directory can be written to");
    let loaded = Machine::load(&path);
    std::fs::write(&path, with("sockets", "sockets = 0")).expect("it could be written before");
    let wrong = Machine::load(&path);
    std::fs::write(&path, [0xff, 0xfe]).expect("it could be written before");
    let binary = Machine::load(&path);
    std::fs::remove_file(&path).expect("it is there");
    let absent = Machine::load(&path);

    assert_eq!(loaded, Machine::parse(GOOD, "some.toml"));
    let wrong = wrong.expect_err("it has no sockets").to_string();
    assert!(wrong.starts_with(&format!("{}:6:1: sockets is 0", path.display())), "{wrong}");
    for error in [binary, absent] {
        let error = error.expect_err("it is no text, or not there");
        assert!(matches!(error, MachineError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_file_without_an_end_is_refused_and_not_kept() {
    let endless = Machine::load("/dev/zero").expect_err("it is no machine");
    assert!(matches!(endless, MachineError::TooLarge { .. }), "{endless}");
    assert!(endless.to_string().starts_with("/dev/zero: longer than 1048576 bytes"), "{endless}");
}

fn topology(sockets: u16, cores_per_socket: u16, threads_per_core: u16) -> Topology {
    Topology { sockets, cores_per_socket, threads_per_core, memory_gib: 1.0 }
}

#[test]
fn cpus_are_numbered_as_linux_does() {
    // As `lscpu` shows it of two sockets of 26 cores: node 0 is 0-25,52-77, node 1 is 26-51,78-103.
    let servers = topology(2, 26, 2);
    for cpu in 0..104 {
        let expected = u32::from((26..52).contains(&cpu) || (78..104).contains(&cpu));
        assert_eq!(servers.socket_of(cpu), expected, "CPU {cpu}");
    }
    assert_eq!(servers.sibling_of(0), Some(52));
    assert_eq!(servers.sibling_of(103), Some(51));
    assert_eq!(servers.sibling_of(104), None);
    assert_eq!(topology(2, 4, 1).sibling_of(3), None);
}

#[test]
fn numbering_is_consistent_for_every_topology() {
    for sockets in 1..=8 {
        for cores_per_socket in 1..=(128 / sockets) {
            for threads in 1..=2 {
                check_numbering(&topology(sockets, cores_per_socket, threads));
            }
        }
    }
}

fn check_numbering(topology: &Topology) {
    let (cpus, cores) = (topology.cpus(), topology.cores());
    let threads = u32::from(topology.threads_per_core);
    assert_eq!(cpus, cores * threads, "{topology:?}");
    let mut threads_of_core = vec![0; cores as usize];
    let mut cores_of_socket = vec![HashSet::new(); usize::from(topology.sockets)];
    for cpu in 0..cpus {
        let core = topology.core_of(cpu);
        threads_of_core[core as usize] += 1;
        cores_of_socket[topology.socket_of(cpu) as usize].insert(core);
        // Lower CPUs are the first threads, in the order of the cores and so of the sockets.
        assert_eq!(topology.core_of(cpu), cpu % cores, "{topology:?}");
        match topology.sibling_of(cpu) {
            Some(sibling) => {
                assert_eq!(threads, 2, "{topology:?}");
                assert_ne!(sibling, cpu, "{topology:?}");
                assert_eq!(topology.sibling_of(sibling), Some(cpu), "{topology:?}");
                assert_eq!(topology.core_of(sibling), core, "{topology:?}");
                assert_eq!(topology.socket_of(sibling), topology.socket_of(cpu), "{topology:?}");
            }
            None => assert_eq!(threads, 1, "{topology:?}"),
        }
    }
    assert!(threads_of_core.iter().all(|&count| count == threads), "{topology:?}");
    let per_socket = usize::from(topology.cores_per_socket);
    assert!(cores_of_socket.iter().all(|cores| cores.len() == per_socket), "{topology:?}");
}

#[test]
fn a_topology_of_nothing_does_not_panic() {
    for (sockets, cores, threads) in
        [(0, 0, 0), (0, 4, 2), (2, 0, 2), (2, 4, 0), (u16::MAX, u16::MAX, 1)]
    {
        let nothing = topology(sockets, cores, threads);
        let _ = (nothing.cpus(), nothing.core_of(7), nothing.socket_of(7), nothing.sibling_of(7));
    }
}

#[test]
fn speed_follows_the_turbo_steps() {
    let clock = Machine::parse(GOOD, "some.toml").expect("it is well-formed").clock;
    let speeds: Vec<f64> = [0, 1, 2, 3, 4, u32::MAX].map(|busy| clock.speed(busy)).to_vec();
    assert_eq!(speeds, [1.5, 1.5, 1.25, 1.1, 1.1, 1.1]);
    let mut without = clock;
    without.turbo_ghz.clear();
    assert_eq!(without.speed(1), 1.0);
}
