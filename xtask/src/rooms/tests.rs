//! Planted sources: one of each way to import against the direction, which must be found, and
//! what looks like one and is not.

use super::*;

const FLOORS: &str = r#"floors = [["top"], ["left", "right"], ["ground"]]"#;

/// A crate with the four rooms of [`FLOORS`], where `more` adds to files or replaces them.
fn sources(more: &[(&str, &str)]) -> Sources {
    let mut texts: BTreeMap<String, String> = [
        ("lib.rs", "mod ground; mod left; mod right; mod top;"),
        ("ground/mod.rs", "pub struct Order; pub fn ground() {}"),
        ("left/mod.rs", "pub struct Left;"),
        ("right/mod.rs", "pub struct Right;"),
        ("top/mod.rs", "pub struct Top;"),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .into();
    texts.extend(more.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())));
    Sources(texts)
}

fn verdict(rules: &str, more: &[(&str, &str)]) -> Verdict {
    check(&toml::from_str(rules).unwrap(), &sources(more)).unwrap()
}

fn found(rules: &str, more: &[(&str, &str)]) -> Vec<String> {
    verdict(rules, more).findings.iter().map(ToString::to_string).collect()
}

/// What is found if this is the text of `ground/mod.rs`, which may import nothing.
fn found_in_ground(text: &str) -> Vec<String> {
    found(FLOORS, &[("ground/mod.rs", text)])
}

#[test]
fn imports_to_lower_floors_are_counted_and_pass() {
    let top = "use crate::{ground::{self, Order}, left::Left};\nuse super::right::*;\n\
               fn f() -> crate::ground::Order { crate::ground::ground(); todo!() }";
    let verdict = verdict(FLOORS, &[("top/mod.rs", top)]);
    assert_eq!(verdict.findings, []);
    assert_eq!((verdict.rooms, verdict.imports), (4, 6));
}

#[test]
fn what_looks_like_an_import_passes() {
    let ground = "//! See [`crate::top::Top`].\n\
        /// As [`crate::top::Top`]; use crate::top::Top.\n\
        pub(crate) struct Order(pub(in crate::ground) u8);\n\
        mod inner { use super::Order; use crate::ground::inner::X; pub struct X; }\n\
        use inner::X; use core::fmt; use ::alloc::vec;\n\
        fn f() { let text = \"crate::top::Top\"; // crate::top\n\
            self::inner::g(text, stringify!(self.x, crate, super)); }\n\
        #[cfg(test)] mod tests { use crate::top::Top; }\n\
        #[cfg(all(test, not(loom)))] use crate::top::Top;\n\
        #[cfg(any(test))] mod in_a_file;\n\
        impl X { #[cfg(test)] fn h() { crate::top::h(); } }\n\
        trait T { #[cfg(test)] fn h() { crate::top::h(); } }\n\
        fn i() { #[cfg(test)] let x = crate::top::h(); #[cfg(test)] crate::top::h!(); }";
    let tests = "use crate::top::Top;";
    let files = [("ground/mod.rs", ground), ("ground/in_a_file.rs", tests)];
    assert_eq!(found(FLOORS, &files), [""; 0]);
}

#[test]
fn every_way_to_import_against_the_direction_is_found() {
    for text in [
        "use crate::top::Top;",
        "pub use crate::top::Top as T;",
        "use crate::{ground::Order, top::{Top}};",
        "use crate::top::{self, Top};",
        "use super::top::Top;",
        "use super::{top as t};",
        "use self::super::top::*;",
        "fn f() { use crate::top::Top; }",
        "fn f() { crate::top::f(); }",
        "fn f(_: &crate::top::Top) {}",
        "fn f<T: crate::top::Trait>() {}",
        "impl crate::top::Trait for u8 {}",
        "fn f() -> impl Fn(super::top::Top) {}",
        "fn f() { <crate::top::Top as Default>::default(); }",
        "fn f() { if let super::top::Top { .. } = x {} }",
        "fn f() { crate::top::m!(); }",
        "mod inner { use super::super::top::Top; }",
        "mod inner { fn f() { super::super::top::f(); } }",
        "macro_rules! m { () => { $crate::top::f() } }",
        "macro_rules! m { () => { use crate::{ground, top::{Top}}; } }",
        "macro_rules! m { () => { use super::top::*; } }",
        "fn f() { assert!(x == [(crate::top::f)()]); }",
        "#[cfg(not(test))] use crate::top::Top;",
        "#[cfg(any(test, loom))] use crate::top::Top;",
        "#[cfg(loom)] fn f() { crate::top::f(); }",
    ] {
        let found = found_in_ground(text);
        assert!(!found.is_empty(), "missed: {text}");
        let first = "ground/mod.rs:1: ground imports top: crate::top";
        assert!(found.iter().all(|found| found.starts_with(first)), "{text}: {found:?}");
    }
}

#[test]
fn findings_say_where_and_what() {
    let left = "\nuse crate::ground::Order;\nuse crate::{\n    ground,\n    top::Top,\n};\n";
    assert_eq!(
        found(FLOORS, &[("left/mod.rs", "mod deep;"), ("left/deep.rs", left)]),
        ["left/deep.rs:5: left imports top: crate::top::Top"]
    );
}

#[test]
fn rooms_of_one_floor_do_not_import_each_other_unless_it_is_said() {
    let left = [("left/mod.rs", "use crate::right::Right;")];
    let finding = "left/mod.rs:1: left imports right: crate::right::Right";
    assert_eq!(found(FLOORS, &left), [finding]);
    let beside = FLOORS.to_owned() + "\nbeside = [\"left -> right\"]";
    assert_eq!(found(&beside, &left), [""; 0]);
    assert_eq!(
        found(&beside, &[("right/mod.rs", "use crate::left::Left;")]),
        [
            "right/mod.rs:1: right imports left: crate::left::Left",
            "xtask/rooms.toml:1: nothing needs \"left -> right\""
        ]
    );
    let both = FLOORS.to_owned() + "\nbeside = [\"left -> right\", \"right -> left\"]";
    assert!(found(&both, &left)[0].contains("would import each other"));
    let apart = FLOORS.to_owned() + "\nbeside = [\"left -> top\"]";
    assert!(found(&apart, &[])[0].contains("not on one floor"));
    let nonsense = FLOORS.to_owned() + "\nbeside = [\"left\"]";
    assert!(found(&nonsense, &[])[0].contains("FROM -> TO"));
}

#[test]
fn re_exports_of_the_root_lead_to_their_room() {
    let lib = "mod ground; mod left; mod right; mod top;\n\
        pub use ground::Order; pub use crate::top::Top as Roof; pub use self::left::*;\n\
        pub use top::deep as shallow; pub mod facade { pub use super::top::Top; }\n\
        pub use facade::Top as Twice; pub struct Own; pub use right::{self as r};\n\
        #[macro_export] macro_rules! here { () => {} }";
    let room_of = |path: &str| {
        let right = format!("use crate::{path};");
        let files = [("lib.rs", lib), ("ground/mod.rs", right.as_str())];
        let found = found(FLOORS, &files);
        assert!(found.len() <= 1, "{found:?}");
        let of = |found: &String| found.split_whitespace().nth(3).map(str::to_owned);
        found.first().and_then(of).unwrap_or_default()
    };
    assert_eq!(room_of("Order"), "");
    assert_eq!(room_of("Roof"), "top:");
    assert_eq!(room_of("Roof::Variant"), "top:");
    assert_eq!(room_of("Left"), "left:");
    assert_eq!(room_of("shallow::deeper"), "top:");
    assert_eq!(room_of("facade::Top"), "top:");
    assert_eq!(room_of("Twice"), "top:");
    assert_eq!(room_of("r::Right"), "right:");
    // All of the root, and what is in lib.rs itself, is above every room.
    for path in ["*", "Own", "facade", "facade::*", "here", "{self as root}"] {
        assert_eq!(room_of(path), "lib.rs:", "{path}");
    }
    // What cannot be followed is not passed over.
    assert_eq!(room_of("Nothing"), "crate::Nothing,");
}

#[test]
fn exported_macros_are_in_the_room_that_has_them() {
    let top = "#[macro_export] macro_rules! m { () => {} }";
    let files = [("top/mod.rs", top), ("ground/mod.rs", "fn f() { crate::m!(); }")];
    assert_eq!(found(FLOORS, &files), ["ground/mod.rs:1: ground imports top: crate::m"]);
}

#[test]
fn exceptions_are_few_and_needed_and_have_reasons() {
    let entry = |from: &str, reason: &str| {
        format!("\n[[allow]]\nfrom = \"{from}\"\nto = \"top\"\nreason = \"{reason}\"")
    };
    let ground = [("ground/mod.rs", "use crate::top::Top;\nuse crate::left::Left;")];
    let left = "ground/mod.rs:2: ground imports left: crate::left::Left";
    let allowed = FLOORS.to_owned() + &entry("ground/mod.rs", "because");
    assert_eq!(found(&allowed, &ground), [left]);

    let without = FLOORS.to_owned() + &entry("ground/mod.rs", " ");
    assert!(found(&without, &ground)[1].ends_with("is allowed without a reason"));

    let needless = allowed.clone() + &entry("left/mod.rs", "once");
    let said = "xtask/rooms.toml:1: nothing needs the entry left/mod.rs -> top";
    assert_eq!(found(&needless, &ground), [left, said]);

    let ten: String = (0..10).map(|n| entry(&format!("{n}.rs"), "many")).collect();
    let few = found(&(FLOORS.to_owned() + &ten), &[]);
    let many = found(&(FLOORS.to_owned() + &ten + &entry("ground/mod.rs", "more")), &ground);
    assert!(!few.iter().any(|found| found.contains("more than 10")));
    assert!(many.iter().any(|found| found.contains("more than 10")), "{many:?}");
}

#[test]
fn every_file_is_in_a_room_that_is_on_a_floor() {
    let lib = "mod ground; mod left; mod right; mod top; mod cellar; mod loose;";
    let files = [("lib.rs", lib), ("cellar/mod.rs", ""), ("loose.rs", "")];
    assert_eq!(
        found(FLOORS, &files),
        [
            "cellar/mod.rs:1: the room `cellar` has no floor in xtask/rooms.toml",
            "loose.rs:1: it is in no room"
        ]
    );
    let attic = r#"floors = [["attic"], ["top", "left"], ["left", "right"], ["ground"]]"#;
    assert_eq!(
        found(attic, &[]),
        [
            "xtask/rooms.toml:1: the room `left` is on two floors",
            "xtask/rooms.toml:1: there is no room `attic`"
        ]
    );
}

#[test]
fn files_that_no_module_names_are_found() {
    let stray = ("ground/stray.rs", "use crate::top::Top;");
    assert_eq!(
        found(FLOORS, &[stray]),
        ["ground/stray.rs:1: no module leads here, so it is not checked"]
    );
    let named = ("ground/mod.rs", "#[cfg(test)] mod stray;");
    assert_eq!(found(FLOORS, &[stray, named]), [""; 0]);
    let included = ("ground/mod.rs", "#[cfg(test)] mod tests { include!(\"stray.rs\"); }");
    assert_eq!(found(FLOORS, &[stray, included]), [""; 0]);
    let compiled = ("ground/mod.rs", "include!(\"stray.rs\");");
    assert_eq!(found(FLOORS, &[stray, compiled]).len(), 1);
}

#[test]
fn what_cannot_be_read_is_an_error() {
    for (text, says) in [
        ("mod gone;", "`mod gone` has no file"),
        ("#[path = \"x.rs\"] mod x;", "names its file"),
        ("fn f( {}", "ground/mod.rs:1"),
    ] {
        let rules = toml::from_str(FLOORS).unwrap();
        let error = check(&rules, &sources(&[("ground/mod.rs", text)])).unwrap_err();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
}

#[test]
fn the_rules_of_the_project_can_be_read() {
    let rules: Rules = toml::from_str(include_str!("../../rooms.toml")).unwrap();
    let judge = Judge::new(&rules);
    assert_eq!(judge.findings, []);
    assert!(judge.floors["report"] > judge.floors["alloc"]);
    assert!(judge.floors["types"] < judge.floors["zone"]);
}
