//! That the header is what cbindgen writes of the library's source, and says what the library does: the compilers of C and
//! C++ compare them, as cbindgen knows the source alone. Written from the library's types and functions: a file of C in
//! which each size, offset, number and type of a function is asserted; it must compile with the header and nothing else.
#![cfg(feature = "std")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use zonal_capi::{
    AllocRequest, BootRegion, Code, Flag, Limit, Memory, Migrate, Nodes, Report, Settings,
    ZoneNumbers,
};

const HEADER: &str = include_str!("../include/zonal.h");
/// Everything that declares a function of C.
const SOURCES: [&str; 6] = [
    include_str!("../src/calls.rs"),
    include_str!("../src/code.rs"),
    include_str!("../src/kernel.rs"),
    include_str!("../src/pages.rs"),
    include_str!("../src/pool.rs"),
    include_str!("../src/reports.rs"),
];

/// Asserts a struct's size and each of its fields: the pattern has all of them, or this does not compile.
macro_rules! layout {
    ($out:ident, $name:literal: $type:ident { $($field:ident),* }) => {{
        let $type { $($field: _),* } = $type::default();
        writeln!($out, "ASSERT(sizeof({}) == {});", $name, size_of::<$type>()).unwrap();
        $(writeln!(
            $out, "ASSERT(offsetof({}, {}) == {});",
            $name, stringify!($field), offset_of!($type, $field)
        ).unwrap();)*
    }};
}

/// A type of Rust in C.
fn in_c(rust: &str) -> &'static str {
    match rust.trim() {
        "*const Handle" => "const zonal *",
        "*mut Pool" => "zonal *",
        "*mut *mut Handle" | "*mut *mut Pool" => "zonal **",
        "*const AllocRequest" => "const zonal_request *",
        "*const BootRegion" => "const zonal_region *",
        "*const Settings" => "const zonal_config *",
        "*mut ZoneNumbers" => "zonal_zone *",
        "*mut c_void" => "void *",
        "*const c_char" => "const char *",
        "*mut c_char" => "char *",
        "*mut u64" => "uint64_t *",
        "*const u64" => "const uint64_t *",
        "*mut usize" => "size_t *",
        "c_int" => "int",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "bool" => "bool",
        "!" => "void",
        other => panic!("no type of C for `{other}`"),
    }
}

/// Name, parameters and result of each function that a source declares, in C.
fn functions(source: &str) -> Vec<(String, String, &'static str)> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("fn zonal_") {
        let rest = &source[at + 3..];
        let end = rest.find(['{', ';']).expect("a function has an end");
        let (name, rest) = rest[..end].split_once('(').expect("a function has parameters");
        let (parameters, result) = rest.rsplit_once(')').expect("parameters have an end");
        let parameters = parameters.split(',').filter(|one| !one.trim().is_empty());
        let parameters: Vec<_> = parameters
            .map(|one| in_c(one.split_once(':').expect("a parameter has a type").1))
            .collect();
        let result = result.trim().strip_prefix("->").map_or("void", in_c);
        let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
        found.push((name.to_owned(), parameters, result));
    }
    found
}

fn all_functions() -> Vec<(String, String, &'static str)> {
    SOURCES.iter().flat_map(|source| functions(source)).collect()
}

const MEMORY: [Memory; 5] =
    [Memory::Usable, Memory::Reserved, Memory::ReclaimLater, Memory::Cma, Memory::Offline];
const MIGRATE: [Migrate; 3] = [Migrate::Unmovable, Migrate::Movable, Migrate::Reclaimable];
const LIMITS: [Limit; 4] = [Limit::Dma, Limit::Dma32, Limit::Normal, Limit::Movable];

/// The file of C.
fn assertions() -> String {
    let mut out = String::from(
        "#include \"zonal.h\"\n#ifdef __cplusplus\n#define ASSERT(holds) static_assert(holds, #holds)\n\
         #else\n#define ASSERT(holds) _Static_assert(holds, #holds)\n#endif\n",
    );
    layout!(out, "zonal_region": BootRegion { start, bytes, kind, node });
    layout!(out, "zonal_request": AllocRequest { order, migrate, zone_limit, node_policy, flags, nodes });
    layout!(out, "zonal_config": Settings {
        size, cpus, bytes, reserve, pageblock_order, reserved, movable_frames, min_free_frames, tables_below
    });
    layout!(out, "zonal_zone": ZoneNumbers {
        size, node, zone_type, instance, start, spanned, present, managed, free, cached, isolated, min, low, high
    });
    macro_rules! constants {
        ($($prefix:literal: $all:expr;)*) => {$(
            for one in $all {
                let name = screaming($prefix, &format!("{one:?}"));
                writeln!(out, "ASSERT({name} == {});", one as i64).unwrap();
            }
        )*};
    }
    constants! {
        "ZONAL_CODE": Code::ALL;
        "ZONAL_FILE": [Report::BuddyInfo, Report::PageTypeInfo, Report::ZoneInfo, Report::VmStat];
        "ZONAL_FLAG": [Flag::Atomic, Flag::High, Flag::NoWait, Flag::ThisNode, Flag::Zero];
        "ZONAL_NODES": [Nodes::Any, Nodes::Preferred, Nodes::Only, Nodes::InTurn];
        "ZONAL_MEMORY": MEMORY;
        "ZONAL_MIGRATE": MIGRATE;
        "ZONAL_LIMIT": LIMITS;
    }
    for (at, (name, parameters, result)) in all_functions().into_iter().enumerate() {
        // A pointer of another type does not take it.
        writeln!(out, "extern {result} (*const type_{at})({parameters});").unwrap();
        writeln!(out, "{result} (*const type_{at})({parameters}) = {name};").unwrap();
    }
    out
}

/// `NoZone` as `NO_ZONE`, after a prefix.
fn screaming(prefix: &str, name: &str) -> String {
    let mut out = prefix.to_owned();
    for letter in name.chars() {
        if letter.is_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles a text with the header; what the compiler said if it did not.
fn compile(name: &str, compiler: &[&str], text: &str) -> Result<(), String> {
    let file = folder("header").join(name);
    std::fs::write(&file, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args([
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-fsyntax-only",
    ]);
    let output = command.arg("-I").arg(include).arg(&file).output().expect("there is a compiler");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

const C: [&str; 4] = ["gcc", "-std=c11", "-x", "c"];
const CPP: [&str; 4] = ["g++", "-std=c++17", "-x", "c++"];

/// What cbindgen writes.
fn generated() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a configuration");
    // In the order of the header.
    let files = ["types", "code", "kernel", "pool", "calls", "pages", "reports"];
    let files = files.map(|file| folder.join("src").join(file).with_extension("rs"));
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = files.into_iter().fold(builder, cbindgen::Builder::with_src);
    let mut text = Vec::new();
    builder.generate().expect("sources of Rust").write(&mut text);
    for_c(&String::from_utf8(text).expect("a text"))
}

/// Comments of Rust as those of C: names for links to them, and what is a heading in Rust's documentation.
fn for_c(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").expect("a link has an end");
        let (target, rest) = match rest.strip_prefix('(') {
            Some(link) => link.split_once(')').expect("a target has an end"),
            None => (name, rest),
        };
        match target.strip_prefix("Code::") {
            Some(code) => out += &screaming("ZONAL_CODE", code),
            None => out += &format!("`{name}`"),
        }
        out += rest;
    }
    out.replace("\n # Safety\n", "\n Contract:\n")
}

#[test]
fn the_header_is_what_the_generator_writes() {
    let text = generated();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/zonal.h");
        std::fs::write(path, &text).unwrap();
    } else {
        assert!(
            text == HEADER,
            "UPDATE_HEADER=1 cargo test -p zonal-capi --test header writes it anew"
        );
    }
}

/// The numbers of the header are the allocator's.
#[test]
fn numbers_are_those_of_the_allocator() {
    macro_rules! same {
        ($($ours:expr, $its:expr, from $first:literal;)*) => {$(
            for (number, (ours, its)) in ($first..).zip($ours.into_iter().zip($its)) {
                assert_eq!(format!("{ours:?}"), format!("{its:?}"));
                assert_eq!(ours as usize, number, "{ours:?}");
            }
        )*};
    }
    same! {
        MEMORY, zonal::map::RegionKind::ALL, from 0;
        MIGRATE, zonal::MigrateType::ALL, from 0;
        // 0 is no limit.
        LIMITS, zonal::ZoneType::ALL, from 1;
    }
    assert_eq!(MEMORY.len(), zonal::map::RegionKind::ALL.len());
    assert_eq!(LIMITS.len(), zonal::ZoneType::ALL.len());
}

#[test]
fn the_header_alone_is_c_and_cpp() {
    compile("alone.c", &C, HEADER).unwrap();
    compile("alone.cpp", &CPP, HEADER).unwrap();
}

#[test]
fn the_header_agrees_with_the_library() {
    compile("agrees.c", &C, &assertions()).unwrap();
    compile("agrees.cpp", &CPP, &assertions()).unwrap();
}

/// What the comparison would have to find.
#[test]
fn a_header_that_lies_is_found() {
    let good = assertions();
    for (from, to) in [
        ("sizeof(zonal_zone) == ", "sizeof(zonal_zone) == 1"),
        ("ZONAL_CODE_BUSY == 15", "ZONAL_CODE_BUSY == 16"),
        ("offsetof(zonal_config, cpus) == 4", "offsetof(zonal_config, cpus) == 8"),
        ("(const zonal *, uint64_t, uint32_t)", "(const zonal *, uint32_t, uint32_t)"),
        ("= zonal_drain;", "= zonal_drains;"),
    ] {
        assert!(good.contains(from), "{from} is asserted");
        let error = compile("lies.c", &C, &good.replace(from, to)).unwrap_err();
        assert!(error.contains("error:"), "{error}");
    }
}

/// No function is in the header alone, none in the library alone.
#[test]
fn the_header_has_all_functions_and_no_others() {
    let bare = without_comments(HEADER);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut declared = BTreeSet::new();
    for (at, _) in bare.match_indices("zonal_") {
        let name: String = bare[at..].chars().take_while(|&c| is_name(c)).collect();
        let is_whole = !bare[..at].ends_with(is_name);
        if is_whole && bare[at + name.len()..].starts_with('(') {
            declared.insert(name);
        }
    }
    let library: BTreeSet<_> = all_functions().into_iter().map(|(name, ..)| name).collect();
    assert!(library.len() >= 20, "{library:?}");
    assert_eq!(declared, library);
}

#[test]
fn comments_are_for_readers_of_c() {
    let rust = "As [`zonal_free`](crate::zonal_free), or [`zonal_open`]; else\n [`NoZone`](Code::NoZone).\n # Safety\n";
    let c = "As `zonal_free`, or `zonal_open`; else\n ZONAL_CODE_NO_ZONE.\n Contract:\n";
    assert_eq!(for_c(rust), c);
    assert!(!HEADER.contains("::"), "no path of Rust");
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + part.split_once("*/").map_or("", |(_, rest)| rest))
}
