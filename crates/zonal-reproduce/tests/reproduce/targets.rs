//! What is to be shown, and what is said of it.

use super::*;

#[test]
fn targets_are_judged() {
    let text = unbroken(&printed(&exact(), &args()).0);
    let line = |wanted: &str| {
        let mut lines = text.lines().filter(|line| line.contains(wanted));
        lines.next().unwrap_or_else(|| panic!("no {wanted} in {text}")).to_owned()
    };
    assert!(line("| base: zone lock |").contains("reached"));
    assert!(line("single pages in the THP mix").contains("reached"));
    assert!(line("zone locks and lines, page_fault1 on 1 to 224").contains("reached"));
    assert!(line("split LRU lock, of what").contains("reached"));
    let worse = Fake {
        off: 0.9,
        figures: vec![(Workload::ThpMix, Preset::Zonal, "thp_score", 9e6)],
        ..exact()
    };
    let text = unbroken(&printed(&worse, &args()).0);
    let line = |wanted: &str| text.lines().find(|line| line.contains(wanted)).expect("it is there");
    // 72 % are not 80 % within 5 points, and 9 million are not 9.49.
    assert!(line("| base: zone lock |").contains("missed"));
    assert!(line("huge pages in the THP mix").contains("missed"));
}

#[test]
fn a_part_is_judged_by_itself_only() {
    let text = |args: &ReproduceArgs| unbroken(&printed(&exact(), args).0);
    let part = text(&ReproduceArgs { only: vec!["thp_mix_56_order0_56_thp".into()], ..args() });
    assert!(part.contains("skip_merge: single pages against base"), "{part}");
    assert!(!part.contains("parallel free of 512 GB"), "it was not run: {part}");
    // Four rows of two hundred have a skill, and it is not that of the table.
    assert!(part.contains("over 4 rows, 4 of them chosen in view"), "{part}");
    assert!(!part.contains("skill over predicting no change"), "{part}");
    assert!(!part.contains("quick run"), "{part}");
    let quick = text(&ReproduceArgs { quick: true, ..args() });
    assert!(quick.contains("This is a quick run"), "{quick}");
    assert!(!quick.contains("skill over predicting no change"), "{quick}");
    let whole = text(&args());
    for table in ["zone_lock", "page_fault1_broadwell40", "fair_zone", "batched_irq", "all tables"]
    {
        let line = format!("skill over predicting no change, {table}");
        let line = whole.lines().find(|it| it.contains(&line)).expect("it is judged");
        assert!(line.contains("reached"), "{line}");
    }
    let one = text(&ReproduceArgs { only: vec!["fair-zone".into()], ..args() });
    assert!(one.contains("no change, fair_zone") && !one.contains("no change, zone_lock"), "{one}");
}

#[test]
fn a_number_of_tasks_that_failed_leaves_the_curves_open() {
    let curves = ["worst error of any number of tasks", "gain from 8 processes up"];
    let shown = |fake: &Fake| {
        let text = unbroken(&printed(fake, &args()).0);
        curves.map(|what| text.lines().any(|line| line.contains(what) && line.contains("reached")))
    };
    assert_eq!(shown(&exact()), [true, true]);
    let one = Fake { fails: Some(Workload::PageFault1), fails_with: Some(23), ..exact() };
    assert_eq!(shown(&one), [false, false], "39 of 40 are not all");
    let quick = unbroken(&printed(&exact(), &ReproduceArgs { quick: true, ..args() }).0);
    assert!(curves.iter().all(|what| quick.contains(what)), "those that it leaves out: {quick}");
}
