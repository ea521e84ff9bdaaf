//! Constants that were fitted on a machine against the rows that they were fitted on.

mod fake;

use fake::exact;
use zonal_reproduce::facts;
use zonal_reproduce::plan::{Choice, Planner};
use zonal_reproduce::{ReproduceArgs, run_on};
use zonal_simulate::runs::{Runner, Simulator};

/// The constants that a machine file names as fitted on it.
fn fitted(source: &str) -> Vec<String> {
    let mut parts = source.split("Fitted, ");
    let _before = parts.next();
    let Some(rest) = parts.next() else { return Vec::new() };
    assert_eq!(parts.next(), None, "it is said once");
    let list = rest.split_once(": ").expect("a list").1.split_once('.').expect("an end").0;
    list.split(',').map(|name| name.trim().to_owned()).collect()
}

/// Rows on which constants of that machine were fitted.
fn rows_of(machine: &str) -> usize {
    let facts = facts::all();
    let planner = Planner::new(&Simulator, &facts, Choice { seed: 1, quick: false });
    let args = ReproduceArgs { seed: 1, no_progress: true, json: true, ..Default::default() };
    let mut out = Vec::new();
    run_on(&exact(), &exact(), &args, &mut out).expect("it runs");
    let rows = String::from_utf8(out).expect("UTF-8");
    let kinds = rows.lines().map(|row| {
        let row: serde_json::Value = serde_json::from_str(row).expect("an object");
        row["kind"] == "fitted"
    });
    let on = |fact| planner.measure(fact).is_ok_and(|measure| measure.key.machine == machine);
    kinds.zip(&facts).filter(|(fitted, fact)| *fitted && on(fact)).count()
}

#[test]
fn no_machine_has_more_fitted_constants_than_fitted_rows() {
    let mut machines = 0;
    for name in Simulator.names() {
        let machine = Simulator.machine(&name).expect("it is built in");
        let constants = fitted(&machine.source);
        if constants.is_empty() {
            continue;
        }
        machines += 1;
        let rows = rows_of(&name);
        assert!(constants.len() <= rows, "{name}: {constants:?} on {rows} rows");
    }
    assert_eq!(
        machines, 5,
        "the sources' machines but the one with four sockets, which has others' constants"
    );
}

/// What a file says is fitted beside a value is in its list, and the other way round.
#[test]
fn the_list_is_what_the_values_say() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../zonal-sim/machines");
    for name in Simulator.names() {
        let path = format!("{directory}/{name}.toml");
        let text = std::fs::read_to_string(&path).expect("a machine file");
        let machine = Simulator.machine(&name).expect("it is built in");
        let beside = text.lines().filter_map(|line| {
            let (value, remark) = line.split_once("# ")?;
            let (key, _) = value.split_once(" = ")?;
            // What was fitted on another machine says which, or that it was there.
            let elsewhere = remark.contains(" of skylake_2s_112cpu") || remark.contains("as on");
            (remark.starts_with("fitted") && !elsewhere).then(|| key.trim().to_owned())
        });
        let (mut beside, mut listed): (Vec<_>, _) = (beside.collect(), fitted(&machine.source));
        beside.sort_unstable();
        listed.sort_unstable();
        assert_eq!(beside, listed, "{name}");
    }
}

#[test]
fn a_constant_too_many_is_found() {
    let seven = "Fitted, on the rows of the base alone: near, memory, fault, unmap_page,\nlru_add, lru_delete, compute. What else.";
    assert_eq!(fitted(seven).len(), 7);
    assert!(fitted(seven).len() > rows_of("intel_2s_224cpu"), "as there once were");
    assert_eq!(fitted("Measured."), Vec::<String>::new());
}
