//! Tables of memory that is not there are read as zero and never written, so that a host may leave them out: with
//! entries that panic when they are written, and on pages that cannot be.

mod pages;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use zonal::map::{PfnRange, SaneMap};
use zonal::policy::Policy;
use zonal::{Pfn, TablePart, TableSize};
use zonal_testkit::checkers::Rules;
use zonal_testkit::command::{Command, commands};
use zonal_testkit::runner::Runner;
use zonal_testkit::sealed::{Sealing, with_sealed};
use zonal_testkit::shape::Shape;
use zonal_testkit::suite::effort;

/// What a command is going to need: all that may come, since it may come with any of them.
fn open_for<S: Policy>(map: &SaneMap, command: &Command, sealing: &Sealing<'_>) {
    if matches!(command, Command::Online { .. }) {
        map.memory().for_each(|range| sealing.open::<S>(range.pfns()));
    }
}

/// Random commands on tables that are sealed where no memory is.
fn random<S: Policy>(cases: u32) {
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    let shapes = prop::sample::select(Shape::ALL.to_vec());
    let run = runner.run(&(shapes, commands(60)), |(shape, commands)| {
        let plan = shape.plan::<S>();
        with_sealed::<S, _>(shape, &plan, |world, sealing| {
            let mut runner = Runner::new(world, Rules::of::<S>());
            // Where memory is released that no map mentioned its tables have to come first, as they do in the
            // test on pages.
            let all = commands.iter().filter(|c| !matches!(c, Command::Release { .. }));
            for command in all {
                open_for::<S>(plan.map(), command, sealing);
                runner.step(command).map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
            }
            runner.finish().map_err(|e| TestCaseError::fail(format!("{e:?}")))
        })
    });
    if let Err(error) = run {
        panic!("{}: {error}", S::NAME);
    }
}

/// The test can fail: memory that comes without its tables is found.
#[test]
fn memory_without_tables_is_found() {
    type S = zonal_testkit::preset::TinyZonal;
    let plan = Shape::Later.plan::<S>();
    let later = plan.map().memory().find(|range| !range.kind.is_present()).unwrap();
    with_sealed::<S, _>(Shape::Later, &plan, |world, _| {
        let online = || world.allocator.online(later.start..later.end);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(online));
        assert!(caught.is_err(), "nothing was written for {later:?}");
    });
}

macro_rules! absent {
    ($($name:ident: $preset:ty;)*) => {$(
        mod $name {
            #[test]
            fn random_commands_write_no_entry_of_absent_memory() {
                super::random::<$preset>(super::effort(12));
            }
        }
    )*};
}
with_presets!(absent);

mod pages_of_absent_memory_are_only_read {
    use zonal::preset::{Cluster, Linux416, SplitZones, Zonal};

    macro_rules! on_pages {
        ($($name:ident: $preset:ty;)*) => {$(
            #[test]
            fn $name() {
                crate::absent::pages::run::<$preset>();
            }
        )*};
    }

    // Lists, clusters, a map, and several instances of a zone; the rest is in `matrix`.
    on_pages! {
        linux416: Linux416;
        cluster: Cluster;
        zonal: Zonal;
        split_zones: SplitZones;
    }

    #[cfg(feature = "matrix")]
    mod others {
        with_presets!(on_pages);
    }
}

/// What is not visited for any memory is small, or is nothing.
#[test]
fn parts_of_all_memory_are_the_tables() {
    type S = zonal::preset::Zonal;
    for shape in Shape::ALL {
        let plan = shape.plan::<S>();
        let mut frames = 0;
        let all = PfnRange::new(plan.base(), Pfn::new(plan.base().get() + plan.frames()));
        TableSize::visit_parts::<S>(&plan, all, &mut |part, elements| {
            let size = TableSize::of::<S>(&plan).elements(part);
            assert!(elements.end <= size, "{shape:?} {part:?} {elements:?} of {size}");
            frames += u64::from(part == TablePart::States) * elements.end;
        });
        assert_eq!(frames, plan.frames());
    }
}
