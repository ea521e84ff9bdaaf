//! The workloads around the allocator: they run through under every preset, lose no frame (a run
//! that does is an error), and say the same twice.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use zonal_sim::machine::{self, Machine};
use zonal_sim::outcome::Outcome;
use zonal_sim::run::{LruLock, Preset, SimError, Spec, Workload, check, run};

/// Presets with linked per-CPU lists, which count the batches that these give back.
const LINKED: [Preset; 3] = [Preset::Linux416, Preset::SkipMerge, Preset::ClusterFree];

fn desktop() -> Machine {
    machine::builtin("desktop_8cpu_4g").expect("it is built in")
}

fn spec(workload: Workload, preset: Preset) -> Spec {
    let delay_ms = u32::from(workload == Workload::StressHighalloc);
    Spec {
        workload,
        preset,
        tasks: 8,
        seed: 7,
        // The page cache's figures are those of the kernels with lists by zone.
        lru: match workload {
            Workload::PageCache | Workload::PageCacheFits => LruLock::Zone,
            _ => LruLock::Node,
        },
        delay_ms,
        quick: true,
        after: None,
        regions: None,
    }
}

fn on_desktop(workload: Workload, preset: Preset) -> Outcome {
    once(&spec(workload, preset))
}

/// The outcome of a run on the desktop, which several tests look at: it takes seconds, and is the same each time.
fn once(spec: &Spec) -> Outcome {
    type Ran = Arc<OnceLock<Outcome>>;
    static RAN: LazyLock<Mutex<HashMap<Spec, Ran>>> = LazyLock::new(Mutex::default);
    // A test that fails in the run leaves the map whole.
    let mut ran = RAN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let outcome = Arc::clone(ran.entry(*spec).or_default());
    drop(ran);
    let run = || run(&desktop(), spec).expect("it runs through and loses nothing");
    outcome.get_or_init(run).clone()
}

fn figure(outcome: &Outcome, name: &str) -> f64 {
    let figure = outcome.figure(name);
    figure.unwrap_or_else(|| panic!("{}: no {name} in {:?}", outcome.preset, outcome.figures))
}

/// What shows that the workload did something.
fn counted(workload: Workload) -> &'static str {
    match workload {
        Workload::PageFault1 | Workload::PageFault1Threads | Workload::Kbuild => "faults_per_s",
        Workload::ParallelFree => "freed_per_s",
        Workload::ThpMix => "thp_score",
        Workload::Boot => "faults",
        Workload::Netperf => "packets_per_s",
        Workload::StressHighalloc => "requests",
        Workload::Truncate => "files",
        Workload::PageCache | Workload::PageCacheFits => "pages",
        Workload::Replay => unreachable!("it is not run by name"),
    }
}

/// Of all pairs a twelfth, such that each preset but one runs a workload, and each workload under one at least; all of them
/// with `ZONAL_TEST_EFFORT` above 1.
fn pairs_to_run(workload: usize) -> impl Iterator<Item = Preset> {
    let effort = std::env::var("ZONAL_TEST_EFFORT").ok().and_then(|effort| effort.parse().ok());
    let all = effort.is_some_and(|effort: u32| effort > 1);
    let chosen = Preset::ALL.into_iter().enumerate();
    chosen
        .filter(move |(preset, _)| all || (workload + preset).is_multiple_of(12))
        .map(|(_, preset)| preset)
}

fn run_through_under_every_preset(workloads: Range<usize>) {
    for at in workloads {
        let workload = Workload::ALL[at];
        let name = counted(workload);
        for preset in pairs_to_run(at) {
            let outcome = on_desktop(workload, preset);
            assert!(figure(&outcome, name) > 0.0, "{workload} {}", preset.name());
            assert!(outcome.seconds > 0.0 && outcome.cycles > 0);
            assert_eq!((&*outcome.workload, &*outcome.preset), (workload.name(), preset.name()));
            let names: Vec<_> = outcome.figures.iter().map(|figure| &figure.name).collect();
            assert!(names.is_sorted_by(|a, b| a < b), "each name once, in order: {names:?}");
        }
    }
}

#[test]
fn the_first_workloads_run_through_under_every_preset() {
    run_through_under_every_preset(0..4);
}

#[test]
fn the_other_workloads_run_through_under_every_preset() {
    run_through_under_every_preset(4..Workload::ALL.len());
}

#[test]
fn the_same_seed_says_the_same_and_another_does_not() {
    // The other one of files is a part of this one.
    let all = Workload::ALL.into_iter().filter(|&it| it != Workload::PageCacheFits);
    for (at, workload) in all.enumerate() {
        let preset = [Preset::ClusterFree, Preset::Zonal][at % 2];
        let spec = spec(workload, preset);
        let first = once(&spec);
        assert_eq!(run(&desktop(), &spec).as_ref(), Ok(&first), "{workload} {}", preset.name());
        // These have no random choice.
        let none = [Workload::Netperf, Workload::ParallelFree, Workload::Truncate];
        let other = run(&desktop(), &Spec { seed: 8, ..spec }).expect("any seed will do");
        assert_eq!(first.cycles != other.cycles, !none.contains(&workload), "{workload}");
    }
}

#[test]
fn batches_of_one_type_add_up() {
    for workload in [Workload::Kbuild, Workload::Boot] {
        for preset in LINKED {
            let outcome = on_desktop(workload, preset);
            let of = |name: &str| figure(&outcome, name);
            let (calls, single) = (of("free_pcppages_bulk_calls"), of("single_mt"));
            let types = ["unmovable", "movable", "reclaimable"];
            let sum: f64 = types.iter().map(|ty| of(&format!("single_mt_{ty}"))).sum();
            assert_eq!(sum, single);
            assert!(0.0 < single && single < calls, "{workload}: {single} of {calls}");
            let share = of("single_mt_percent");
            assert!((share - single * 100.0 / calls).abs() < 1e-9, "{share}");
            // Nearly everything that a build frees at once are the pages of a process.
            assert!(of("single_mt_movable_percent") > 50.0, "{workload}");
        }
        let outcome = on_desktop(workload, Preset::Zonal);
        assert_eq!(figure(&outcome, "free_pcppages_bulk_calls"), 0.0, "no such lists");
    }
}

#[test]
fn batches_are_in_proportion_to_the_faults() {
    // All that a build maps it frees, in batches of 31: over a stretch they cannot be far apart.
    let outcome = on_desktop(Workload::Kbuild, Preset::ClusterFree);
    // Batches count from the beginning, with a warm-up as long as what is measured.
    let faults = 2.0 * figure(&outcome, "faults_per_s") * outcome.seconds;
    let freed = figure(&outcome, "free_pcppages_bulk_calls") * 31.0;
    assert!((0.5..1.2).contains(&(freed / faults)), "{freed} frames of {faults}");
}

#[test]
fn a_faster_build_asks_for_more() {
    let slow = on_desktop(Workload::Kbuild, Preset::Linux416);
    let mut machine = desktop();
    machine.kernel.compute /= 4.0;
    let fast = run(&machine, &spec(Workload::Kbuild, Preset::Linux416)).expect("it runs through");
    let (slow, fast) = (figure(&slow, "faults_per_s"), figure(&fast, "faults_per_s"));
    assert!(fast > 1.5 * slow, "{slow} faults a second, then {fast}");
}

#[test]
fn pairs_of_cpus_do_not_disturb_each_other_but_in_the_zone() {
    let packets = |preset, tasks| {
        let spec = Spec { tasks, ..spec(Workload::Netperf, preset) };
        figure(&once(&spec), "packets_per_s")
    };
    for preset in [Preset::Linux416, Preset::Zonal] {
        let (one, two) = (packets(preset, 2), packets(preset, 4));
        assert!((1.5..2.05).contains(&(two / one)), "{}: {one}, then {two}", preset.name());
    }
}

#[test]
fn huge_pages_come_from_moved_and_dropped_pages() {
    for preset in [Preset::Linux416, Preset::Zonal] {
        let outcome = on_desktop(Workload::StressHighalloc, preset);
        let of = |name: &str| figure(&outcome, name);
        assert_eq!(of("requests"), 243.0, "95 % of the 256 blocks of 512 MiB");
        let rate = of("success_rate");
        assert!(rate > 5.0 && rate < 100.0, "{rate} %");
        // Memory was full: what was had was dropped, or was free because of the watermarks.
        let had = rate / 100.0 * 243.0 * 512.0;
        assert!(of("pages_reclaimed") > had / 2.0, "{had} frames had");
        assert!(of("pages_migrated") > 0.0);
        assert!(of("mean_time_served") > 1_000.0, "no request compacts in a microsecond");
    }
}

#[test]
fn time_between_requests_is_virtual() {
    let seconds = |delay_ms| {
        let spec = Spec { delay_ms, ..spec(Workload::StressHighalloc, Preset::SkipMerge) };
        run(&desktop(), &spec).expect("it runs through").seconds
    };
    let (short, long) = (seconds(1), seconds(5));
    // Reclaim goes on while requests wait, so that each takes a little less itself.
    assert!(long - short > 0.8 * 243.0 * 0.004, "{short} s, then {long} s");
}

#[test]
fn instances_of_a_zone_take_the_waiting_away() {
    let intel = machine::builtin("intel_2s_224cpu").expect("it is built in");
    let mut intel = intel;
    intel.kernel.compute = 20_000.0;
    let spin = |preset| {
        let spec = Spec { tasks: 112, ..spec(Workload::Kbuild, preset) };
        run(&intel, &spec).expect("it runs through").spin_percent("zone")
    };
    let (one, four) = (spin(Preset::Linux63), spin(Preset::SplitZones));
    assert!(four < one / 4.0, "{one} %, then {four} %");
}

#[test]
fn instances_of_a_zone_make_sixteen_processes_faster() {
    let intel = machine::builtin("intel_2s_224cpu").expect("it is built in");
    let [one, four] = [Preset::Linux63, Preset::SplitZones].map(|preset| {
        let spec = Spec { tasks: 16, ..spec(Workload::PageFault1, preset) };
        run(&intel, &spec).expect("it runs through")
    });
    let spins = [&one, &four].map(|outcome| outcome.spin_percent("zone"));
    assert!(spins[0] > 5.0 && spins[1] < spins[0] / 4.0, "{spins:?} %");
    let [one, four] = [&one, &four].map(|outcome| figure(outcome, "faults_per_s"));
    assert!(four > 1.05 * one, "{one} faults a second, then {four}");
}

/// Where pages of files were allocated, in percent of all: in DMA32.
fn dma32_share(outcome: &Outcome) -> f64 {
    let of = |name: &str| figure(outcome, name);
    let (dma32, normal) = (of("dma32_allocs"), of("normal_allocs"));
    assert_eq!(dma32 + normal, of("pages"), "each is in one of two zones");
    let share = of("dma32_share");
    assert!((share - dma32 * 100.0 / (dma32 + normal)).abs() < 1e-9, "{share}");
    share
}

#[test]
fn first_fit_fills_normal_before_dma32() {
    let outcome = on_desktop(Workload::PageCacheFits, Preset::Linux416);
    // Files of 80 % of memory: what does not fit into Normal's 62.5 %, less what is used there
    // and the low watermark, is in DMA32.
    let share = dma32_share(&outcome);
    let expected = (80.0 - (62.5 - 4.5)) / 80.0 * 100.0;
    assert!((share - expected).abs() < 2.0, "{share} %, not {expected}");
    assert_eq!(figure(&outcome, "kswapd_wakes"), 0.0, "nothing has to be reclaimed");
}

#[test]
fn fair_walks_spread_by_the_size_of_zones() {
    for preset in [Preset::Linux316, Preset::FairZone, Preset::LessDirty] {
        let outcome = on_desktop(Workload::PageCacheFits, preset);
        let share = dma32_share(&outcome);
        assert!((share - 37.5).abs() < 2.0, "{}: {share} %", preset.name());
    }
}

#[test]
fn reclaim_gives_back_what_streams_take() {
    for preset in [Preset::Linux416, Preset::Linux316, Preset::LessDirty, Preset::Zonal] {
        let outcome = on_desktop(Workload::PageCache, preset);
        let of = |name: &str| figure(&outcome, name);
        let share = dma32_share(&outcome);
        // Memory, twice as large files written and read: it was turned over nearly four times.
        assert!(of("pages") > 3.8 * f64::from(1 << 17), "{}", preset.name());
        assert_eq!(of("direct_reclaims"), 0.0, "{}: the disk is slower", preset.name());
        assert!(of("kswapd_wakes") > 100.0, "{}", preset.name());
        let scanned = (of("dma32_velocity") + of("normal_velocity")) * outcome.seconds;
        // All but what fits at the end; files are deleted then.
        let reclaimed = of("pages") - f64::from(1 << 17);
        assert!((0.95..1.1).contains(&(scanned / reclaimed)), "{scanned} of {reclaimed}");
        if preset == Preset::Linux316 {
            let velocity = of("dma32_velocity_share");
            assert!((velocity - share).abs() < 2.0, "{velocity} % of the scans, {share} %");
        }
    }
}

#[test]
fn a_limit_on_dirty_pages_costs_what_it_examines() {
    // One stream, and six that wait for each other. First fit has no limits, and fewer zones to wait for: it is no
    // measure of what limits cost.
    for tasks in [3, 8] {
        let cycles = |preset| {
            let spec = Spec { tasks, ..spec(Workload::PageCache, preset) };
            figure(&once(&spec), "alloc_cycles")
        };
        let [cached, exact] = [Preset::LessDirty, Preset::FairZone].map(cycles);
        assert!(1.02 * cached < exact, "cached {cached}, exact {exact} cycles");
    }
}

#[test]
fn lists_of_pages_toggle_interrupts_once() {
    let mean = |preset, toggles: f64| {
        let one = Spec { tasks: 1, ..spec(Workload::Truncate, preset) };
        let outcome = run(&desktop(), &one).expect("it runs through and loses nothing");
        assert!((figure(&outcome, "toggles_a_page") - toggles).abs() < 1e-9, "{}", preset.name());
        let quartiles = ["file_min", "file_1st_qrtle", "file_2nd_qrtle", "file_3rd_qrtle"];
        let quartiles = quartiles.map(|name| figure(&outcome, name));
        assert!(quartiles.is_sorted() && quartiles[0] > 0.0, "{quartiles:?}");
        figure(&outcome, "file_mean")
    };
    // 1024 pages are 74 lists.
    let lists = 74.0 / 1024.0;
    let (each, once) = (mean(Preset::Linux413, 1.0), mean(Preset::Linux416, lists));
    mean(Preset::Zonal, lists);
    let machine = desktop();
    // In microseconds of a core at full speed; an entry is a toggle and a store.
    let ghz = machine.clock.turbo_ghz[0];
    let toggles = (1024.0 - 74.0) * machine.cost.irq_toggle / ghz / 1e3;
    let saved = (each - once) / toggles;
    assert!((1.0..1.5).contains(&saved), "{each} us, then {once}: {saved} of the toggles");
}

#[test]
fn what_does_not_fit_is_said_before_it_is_run() {
    let mut small = desktop();
    small.topology.memory_gib = 0.25;
    let mut tiny = desktop();
    tiny.topology.memory_gib = 0.0625;
    let large = machine::builtin("broadwell_2s_40cpu").expect("it is built in");
    let [four, intel] = ["skylake_4s_768g", "intel_2s_224cpu"]
        .map(|name| machine::builtin(name).expect("it is built in"));
    let misfits = [
        (&desktop(), Workload::Netperf, 3, "an even number"),
        (&desktop(), Workload::ThpMix, 1, "an even number"),
        (&desktop(), Workload::ThpMix, 3, "an even number"),
        (&small, Workload::ThpMix, 8, "2 GiB"),
        (&small, Workload::Boot, 8, "3 GiB"),
        (&small, Workload::PageFault1, 8, "it takes 1.25 GiB of memory, of 0.25"),
        (&small, Workload::PageFault1Threads, 1, "it takes 1 GiB"),
        (&small, Workload::Kbuild, 1, "1 GiB"),
        (&small, Workload::StressHighalloc, 8, "it takes 0.5 GiB"),
        (&small, Workload::PageCache, 8, "0.5 GiB"),
        (&small, Workload::PageCacheFits, 8, "0.5 GiB"),
        (&small, Workload::Truncate, 8, "room for 6 files a task, of at least 32"),
        (&tiny, Workload::Netperf, 2, "0.25 GiB"),
        (&tiny, Workload::ParallelFree, 8, "it takes 96 MiB"),
        (&desktop(), Workload::StressHighalloc, 2, "at least 3 tasks"),
        (&four, Workload::StressHighalloc, 192, "at most 2 sockets"),
        (&intel, Workload::StressHighalloc, 224, "more than 111 tasks leave no page cache"),
        (&desktop(), Workload::PageCache, 2, "at least 3 tasks"),
        (&large, Workload::PageCache, 8, "one socket"),
        (&large, Workload::PageCacheFits, 8, "one socket"),
    ];
    for (machine, workload, tasks, said) in misfits {
        let spec = Spec { tasks, ..spec(workload, Preset::Zonal) };
        let refused = run(machine, &spec).expect_err("it does not fit");
        assert_eq!(check(machine, &spec), Err(refused.clone()));
        // Nor does a run of full length fit.
        let full = check(machine, &Spec { quick: false, ..spec });
        assert!(full.is_err(), "{workload} on {tasks} CPUs of {}", machine.name);
        assert!(matches!(refused, SimError::DoesNotFit { .. }), "{refused:?}");
        assert!(refused.to_string().contains(said), "{refused}");
    }
    for workload in Workload::ALL {
        assert_eq!(check(&desktop(), &spec(workload, Preset::Zonal)), Ok(()));
    }
    // No machine that is built in is too small for anything on all of its CPUs.
    for (name, machine) in machine::builtins() {
        for workload in Workload::ALL {
            let spec = Spec { tasks: machine.topology.cpus(), ..spec(workload, Preset::Zonal) };
            let refused = check(&machine, &Spec { quick: false, ..spec }).err();
            assert!(
                refused.is_none_or(|it| !it.to_string().contains("memory")),
                "{name} {workload}"
            );
        }
    }
    // What is asked for is there.
    small.topology.memory_gib = 2.0;
    run(&small, &spec(Workload::ThpMix, Preset::Linux416)).expect("it fits");
}

/// A machine on which everything takes as little, or as much, as a file may say.
fn extreme(cycles: f64, bandwidth_gib_s: f64, (nominal_ghz, turbo_ghz): (f64, f64)) -> Machine {
    let text = desktop().to_toml().expect("its values are within their ranges");
    let costs = text.find("[cost]").expect("there are costs");
    let lines = text[costs..].lines().map(|line| match line.split_once(" = ") {
        Some(("bandwidth_gib_s", _)) => format!("bandwidth_gib_s = {bandwidth_gib_s}\n"),
        Some((key, _)) if !matches!(key, "lru_batch" | "spread") => format!("{key} = {cycles}\n"),
        _ => format!("{line}\n"),
    });
    let text = text[..costs].to_owned() + &lines.collect::<String>();
    let mut machine = Machine::parse(&text, "extreme.toml").expect("no value is beyond its range");
    machine.clock.nominal_ghz = nominal_ghz;
    machine.clock.turbo_ghz = vec![turbo_ghz];
    assert_eq!(machine.check(), Ok(()));
    machine
}

#[test]
fn machines_at_the_bounds_of_their_values_come_to_an_end() {
    for machine in [extreme(0.1, 1e6, (1.0, 10.0)), extreme(1000.0, 0.2, (10.0, 0.1))] {
        for (workload, tasks) in [(Workload::PageFault1, 1), (Workload::Kbuild, 8)] {
            let spec = Spec { tasks, ..spec(workload, Preset::Zonal) };
            let outcome = run(&machine, &spec).expect("it runs through");
            assert!(outcome.cycles > 0 && figure(&outcome, counted(workload)) > 0.0);
        }
    }
}

#[test]
fn what_memory_there_is_is_enough_for_what_is_scaled_to_it() {
    let mut small = desktop();
    let least = [(Workload::ParallelFree, 0.09375), (Workload::Truncate, 1.375)];
    for (at, (workload, memory_gib)) in least.into_iter().enumerate() {
        small.topology.memory_gib = memory_gib;
        for preset in pairs_to_run(at) {
            for quick in [false, true] {
                let spec = Spec { quick, ..spec(workload, preset) };
                let outcome = run(&small, &spec).expect("it fits");
                assert!(figure(&outcome, counted(workload)) > 0.0, "{workload} {}", preset.name());
            }
        }
    }
    // As many files as three quarters of memory hold, of 256.
    let files = |memory_gib, tasks| {
        let mut machine = desktop();
        machine.topology.memory_gib = memory_gib;
        let spec = Spec { tasks, quick: false, ..spec(Workload::Truncate, Preset::Zonal) };
        figure(&run(&machine, &spec).expect("it fits"), "files")
    };
    assert_eq!((files(4.0, 8), files(4.0, 1), files(0.5, 1)), (8.0 * 96.0, 256.0, 96.0));
}

#[test]
fn every_bit_of_a_seed_counts() {
    let cycles = |seed| {
        let spec = Spec { seed, ..spec(Workload::PageFault1, Preset::Zonal) };
        run(&desktop(), &spec).expect("any seed will do").cycles
    };
    let few = cycles(1);
    assert_ne!(few, cycles(1 | 1 << 60));
    assert_ne!(few, cycles(u64::MAX));
}

#[test]
fn pages_come_off_the_lists_as_many_at_once_as_the_kernel_takes() {
    for (preset, at_once) in [(Preset::Linux416, 32.0), (Preset::Linux413, 14.0_f64)] {
        let spec = Spec { tasks: 2, ..spec(Workload::PageFault1, preset) };
        let outcome = run(&desktop(), &spec).expect("it fits");
        let pages = figure(&outcome, "faults_per_s") * outcome.seconds;
        let locks = outcome.locks.iter().filter(|lock| lock.class == "lru");
        let taken = locks.map(|lock| lock.taken).sum::<u64>() as f64;
        let wanted = pages * (1.0 / 15.0 + (512.0 / at_once).ceil() / 512.0);
        assert!((taken / wanted - 1.0).abs() < 0.1, "{}: {taken}, not {wanted}", preset.name());
    }
}

#[test]
fn huge_pages_are_listed_one_by_one() {
    // Two tasks: what is mapped when the count begins and ends is little.
    let spec = Spec { tasks: 2, ..spec(Workload::ThpMix, Preset::Linux416) };
    let outcome = run(&desktop(), &spec).expect("it fits");
    let pages = |name: &str| figure(&outcome, name) * outcome.seconds;
    let (single, huge) = (pages("order0_score"), pages("thp_score") / 512.0);
    let taken: u64 =
        outcome.locks.iter().filter(|lock| lock.class == "lru").map(|it| it.taken).sum();
    // Each page is listed and later unlisted; single ones in batches of 15, of 512 gathered pages 16 times 32.
    let batches = single * (1.0 / 15.0 + 16.0 / 512.0);
    let by_themselves = (taken as f64 - batches) / huge;
    assert!((1.5..2.5).contains(&by_themselves), "{by_themselves} holds for each of {huge}");
}
