//! Sequences that once broke an invariant, as the suite printed them.

/// As printed by [`as_source`](zonal_testkit::command::as_source); not formatted, so that it
/// can be compared.
mod printed {
    include!("regressions/unreserve_leaves_buddies.rs");
}

mod more {
    use zonal_testkit::command::{Ask, Command, Nodes, as_source, from_bytes};
    use zonal_testkit::probe::Probe;
    use zonal_testkit::runner::run_commands;
    use zonal_testkit::shape::Shape;

    macro_rules! all_run_commands {
        ($($name:ident: $preset:ty;)*) => { [$(run_commands::<Probe, $preset>),*] };
    }

    fn on_all_presets(shape: Shape, commands: &[Command]) {
        let runs: [fn(Shape, &[Command]) -> _; _] = with_presets!(all_run_commands);
        for run in runs {
            run(shape, commands).unwrap();
        }
    }

    /// What is printed compiles and runs: it is the file above.
    #[test]
    fn commands_print_as_source() {
        let commands = [
            Command::AllocBulk { ask: Ask { order: 6, flags: 1, ..Ask::FRAME }, count: 25 },
            Command::Fill { ask: Ask { order: 9, nodes: Nodes::Bind(3), ..Ask::FRAME }, spare: 0 },
            Command::FreeBulk { nth: 1, count: 2, twice: true },
            Command::DrainAll,
        ];
        let printed = include_str!("regressions/unreserve_leaves_buddies.rs");
        assert_eq!(as_source("TinyZonal", Shape::Holes, &commands), printed);
    }

    /// A pageblock that an owner had freed past its slot was counted as one frame once its cache was sized anew.
    #[test]
    fn pageblocks_freed_before_memory_came() {
        let commands = [
            Command::Own { cpu: 126, on: true },
            Command::SwitchCpu { cpu: 26 },
            Command::Alloc(Ask { order: 5, limit: 2, ..Ask::FRAME }),
            Command::FreeAll,
            Command::Online { nth: 0, count: 0 },
        ];
        on_all_presets(Shape::Later, &commands);
    }

    /// The high-atomic reserve took the first pageblock of a larger block only; when it gave
    /// that back, the pageblocks became free buddies that stayed unmerged (I-5).
    #[test]
    fn large_urgent_blocks() {
        for order in 3..=10 {
            let urgent = Ask { order, flags: 1, ..Ask::FRAME };
            let commands = [
                Command::AllocBulk { ask: urgent, count: 2 },
                Command::FreeAll,
                Command::Fill { ask: Ask { order: 10, ..Ask::FRAME }, spare: 0 },
                Command::Fill { ask: Ask::FRAME, spare: 30 },
            ];
            for shape in Shape::ALL {
                on_all_presets(shape, &commands);
            }
        }
    }

    /// Memory goes again that had made room for a pageblock of the reserve.
    #[test]
    fn a_reserve_of_memory_that_went() {
        for order in [1, 4, 7, 10] {
            let commands = [
                Command::Online { nth: 233, count: 31 },
                Command::Alloc(Ask { order, flags: 1, ..Ask::FRAME }),
                Command::Offline { nth: 81, count: 4 },
                Command::Free { nth: 0 },
            ];
            on_all_presets(Shape::Later, &commands);
        }
    }

    /// Several pageblocks of the reserve merge; one is given back: the others stay merged.
    #[test]
    fn one_of_several_reserved_pageblocks() {
        let commands = [
            Command::Alloc(Ask { order: 5, flags: 1, ..Ask::FRAME }),
            Command::Free { nth: 0 },
            Command::Fill { ask: Ask { order: 10, ..Ask::FRAME }, spare: 0 },
            Command::Fill { ask: Ask { order: 10, ..Ask::FRAME }, spare: 0 },
            Command::Fill { ask: Ask { order: 4, ..Ask::FRAME }, spare: 0 },
        ];
        on_all_presets(Shape::Blocks3, &commands);
    }

    /// Larger blocks were freed while the marks kept everything; the counts of the CPUs had not been
    /// gathered when the marks fell and the caches were not due to be emptied.
    #[test]
    fn counts_not_gathered_when_marks_fall() {
        let pages = |count, align| Command::AllocPages { ask: Ask::FRAME, count, align, below: 0 };
        let bulk = |count| Command::AllocBulk { ask: Ask::FRAME, count };
        let urgent = Ask { order: 1, migrate: 1, flags: 1, ..Ask::FRAME };
        let commands = [
            Command::SetWatermarks { zone: 0, min: 361, step: 0 },
            pages(95, 0),
            bulk(567),
            Command::Alloc(Ask::FRAME),
            pages(1, 9),
            Command::Fill { ask: urgent, spare: 14 },
            pages(1, 0),
            Command::Alloc(Ask::FRAME),
            Command::SetWatermarks { zone: 0, min: 0, step: 0 },
            bulk(23),
            Command::Alloc(Ask { order: 1, ..Ask::FRAME }),
        ];
        on_all_presets(Shape::Cma, &commands);
    }

    /// Where the fuzzer begins with memory that comes and goes: the seed does what it is for.
    #[test]
    fn the_seed_with_later_memory() {
        let seed = include_bytes!("../../../fuzz/corpus/commands/seed-later");
        let (shape, commands) = from_bytes(seed, 60);
        assert_eq!(shape, Shape::Later);
        let online = |at: &&Command| matches!(at, Command::Online { .. });
        let offline = |at: &&Command| matches!(at, Command::Offline { .. });
        assert_eq!(commands.iter().filter(online).count(), 6, "{commands:?}");
        assert_eq!(commands.iter().filter(offline).count(), 4, "{commands:?}");
        on_all_presets(shape, &commands);
    }
}
