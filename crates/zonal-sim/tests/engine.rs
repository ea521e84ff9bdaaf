//! The engine under clocks: the same to the cycle, no time lost, and what is refused.

use zonal_sim::machine::{self, Machine};
use zonal_sim::outcome::Outcome;
use zonal_sim::replay::{self, Script};
use zonal_sim::run::{LruLock, Preset, SimError, Spec, Workload, check, run};

fn desktop() -> Machine {
    machine::builtin("desktop_8cpu_4g").expect("it is built in")
}

fn spec(preset: Preset, tasks: u32, seed: u64) -> Spec {
    let (workload, lru) = (Workload::PageFault1, LruLock::Node);
    Spec {
        workload,
        preset,
        tasks,
        seed,
        lru,
        delay_ms: 0,
        quick: true,
        after: None,
        regions: None,
    }
}

fn outcome(spec: &Spec) -> Outcome {
    run(&desktop(), spec).expect("it fits the machine")
}

#[test]
fn the_same_to_the_cycle() {
    for preset in [Preset::Linux416, Preset::Zonal] {
        let spec = spec(preset, 8, 11);
        let first = outcome(&spec);
        assert_eq!(outcome(&spec), first, "{}", preset.name());
        // On two threads at once; memory is elsewhere there.
        let both = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| outcome(&spec)));
            threads.map(|thread| thread.join().expect("it ran before"))
        });
        assert_eq!(both, [first.clone(), first.clone()], "{}", preset.name());
    }
}

#[test]
fn another_seed_is_another_run() {
    let runs: Vec<_> = (1..=3).map(|seed| outcome(&spec(Preset::Linux416, 4, seed))).collect();
    for (at, one) in runs.iter().enumerate() {
        for other in &runs[at + 1..] {
            assert_ne!((&one.lines, one.cycles), (&other.lines, other.cycles));
        }
        // The same work all the same.
        let of = |run: &Outcome| run.figure("faults_per_s").expect("it counts faults");
        assert!((of(one) / of(&runs[0]) - 1.0).abs() < 0.1, "{} and {}", of(one), of(&runs[0]));
    }
}

/// Every preset does the work; all CPUs' cycles are accounted for, and no class of waiting or of
/// lines has more than there are.
#[test]
fn every_preset_faults_pages_and_loses_no_time() {
    let workloads = [Workload::PageFault1, Workload::PageFault1Threads];
    for (preset, workload) in Preset::ALL.iter().flat_map(|it| workloads.map(|work| (*it, work))) {
        let run = outcome(&Spec { workload, ..spec(preset, 8, 5) });
        let name = preset.name();
        assert_eq!((run.preset.as_str(), run.tasks, run.seed), (name, 8, 5));
        let window = run.seconds * desktop().clock.nominal_ghz * 1e9;
        let all = run.cycles as f64;
        assert!((all - 8.0 * window).abs() <= 8.0, "{name}: {all} is not 8 x {window}");

        let spun: u64 = run.spins.iter().map(|spin| spin.cycles).sum();
        let on_lines: u64 = run.lines.iter().map(|class| class.cycles).sum();
        assert!(on_lines > 0 && ((spun + on_lines) as f64) < all, "{name}: {spun} + {on_lines}");
        for lock in &run.locks {
            assert!(lock.contended <= lock.taken && lock.taken > 0, "{name}: {lock:?}");
            assert!((lock.contended == 0) == (lock.waited == 0), "{name}: {lock:?}");
            assert!(lock.transferred <= lock.waited + lock.held, "{name}: {lock:?}");
            // No CPU is in a lock with another: holds end within the window, but for the
            // last one of each CPU. Readers of an address space are.
            let at_once = if lock.class == "space" { 8.0 } else { 1.0 };
            assert!(lock.held as f64 <= at_once * window * 1.01, "{name}: {lock:?}, of {window}");
        }
        let spaces = run.locks.iter().filter(|lock| lock.class == "space").count();
        assert_eq!(spaces, usize::from(workload == Workload::PageFault1Threads), "{name}");
        // What is waited for locks is put down to their classes; all of it.
        let by_lock: u64 = run.locks.iter().map(|lock| lock.waited).sum();
        assert!(by_lock.abs_diff(spun) <= spun / 50 + 1000, "{name}: {by_lock} and {spun}");
        let rate = run.figure("faults_per_s").expect("it counts faults");
        // A fault takes at least what the kernel takes, and less than ten times that.
        let least = desktop().kernel.fault + desktop().kernel.clear_page;
        let most = all / run.seconds / least;
        assert!(rate < 2.0 * most && rate > most / 10.0, "{name}: {rate} of {most}");
    }
}

#[test]
fn what_cannot_run_is_refused() {
    let machine = desktop();
    for tasks in [0, 9, u32::MAX] {
        let error = run(&machine, &spec(Preset::Zonal, tasks, 1)).unwrap_err();
        assert_eq!(error, SimError::Tasks { machine: machine.name.clone(), asked: tasks, cpus: 8 });
        let text = error.to_string();
        assert!(text.contains(&format!("{tasks} tasks")) && text.contains("1 to 8"), "{text}");
    }
    // And nothing is left behind on the thread.
    assert_eq!(outcome(&spec(Preset::Zonal, 1, 1)), outcome(&spec(Preset::Zonal, 1, 1)));
}

#[test]
fn a_machine_that_cannot_be_is_refused_before_anything_is_done_with_it() {
    let mut wide = desktop();
    wide.topology.cores_per_socket = 200;
    let mut empty = desktop();
    empty.topology.sockets = 0;
    let mut free = desktop();
    free.cost.access = 0.0;
    let script = Script::new();
    for (machine, said) in [
        (wide, "cores_per_socket is 200"),
        (empty, "sockets is 0"),
        (free, "access is 0, but must be 0.1"),
    ] {
        let refused = run(&machine, &spec(Preset::Zonal, 1, 1)).expect_err("no such machine");
        assert!(matches!(refused, SimError::Machine(_)), "{refused:?}");
        assert!(refused.to_string().contains(said), "{refused}");
        assert_eq!(check(&machine, &spec(Preset::Zonal, 1, 1)), Err(refused.clone()));
        assert_eq!(replay::run(&machine, Preset::Zonal, &script, 64 << 20), Err(refused));
    }
}

#[test]
fn a_replay_has_no_more_memory_than_the_machine() {
    let run = |memory| replay::run(&desktop(), Preset::Zonal, &Script::new(), memory);
    let refused = run(64 << 30).expect_err("the machine has 4 GiB");
    assert!(matches!(refused, SimError::DoesNotFit { .. }), "{refused:?}");
    assert!(refused.to_string().contains("it takes 64 GiB of memory, of 4"), "{refused}");
    assert!(!matches!(run(4 << 30), Err(SimError::DoesNotFit { .. })), "all of it");
}

#[test]
fn a_task_alone_does_not_wait() {
    let run = outcome(&spec(Preset::Linux416, 1, 1));
    assert!(run.spins.is_empty(), "{:?}", run.spins);
    assert!(run.locks.iter().all(|lock| lock.contended == 0));
    assert!(run.lines.iter().all(|class| (class.near, class.far) == (0, 0)), "one core");
}

/// What the profile calls a lock is where it is, whichever CPU took it first.
#[test]
fn locks_are_counted_within_their_class() {
    // Four instances on each socket have as many CPUs as prefer them all.
    for (preset, lru, cores) in [
        (Preset::Linux416, LruLock::Node, 4),
        (Preset::Zonal, LruLock::Node, 4),
        (Preset::SplitZones, LruLock::Split, 28),
    ] {
        let mut machine = machine::builtin("skylake_2s_112cpu").expect("it is built in");
        machine.topology.cores_per_socket = cores;
        machine.clock.turbo_ghz.truncate(cores as usize);
        let cpus = machine.topology.cpus();
        let run = run(&machine, &Spec { lru, ..spec(preset, cpus, 1) }).expect("it fits");
        let of = |class: &str| -> Vec<u32> {
            run.locks.iter().filter(|lock| lock.class == class).map(|lock| lock.index).collect()
        };
        let zones = match preset {
            Preset::SplitZones => 8,
            // A map takes no lock here.
            Preset::Zonal => 0,
            _ => 2,
        };
        let lists = if lru == LruLock::Split { cpus } else { 2 };
        assert_eq!(of("zone"), (0..zones).collect::<Vec<_>>(), "{}", preset.name());
        assert_eq!(of("lru"), (0..lists).collect::<Vec<_>>(), "{}", preset.name());
    }
}

/// How many locks of LRU lists were taken.
fn lists(machine: &Machine, spec: &Spec) -> usize {
    let run = run(machine, spec).expect("it fits");
    run.locks.iter().filter(|lock| lock.class == "lru" && lock.taken > 0).count()
}

#[test]
fn processes_have_lists_under_the_lock_that_the_preset_names() {
    let mut machine = machine::builtin("skylake_2s_112cpu").expect("it is built in");
    machine.topology.cores_per_socket = 2;
    machine.clock.turbo_ghz.truncate(2);
    let cpus = machine.topology.cpus();
    for (preset, wanted) in [
        (Preset::Linux316, 2),
        (Preset::Linux416, 2),
        (Preset::Linux63, cpus as usize),
        (Preset::Zonal, cpus as usize),
    ] {
        let spec = Spec { lru: LruLock::of(preset), ..spec(preset, cpus, 1) };
        assert_eq!(lists(&machine, &spec), wanted, "{}", preset.name());
        let other = Spec { lru: LruLock::Split, ..spec };
        assert_eq!(lists(&machine, &other), cpus as usize, "{}", preset.name());
    }
}

/// A node of two zones, on which three tasks read and write files.
#[test]
fn files_have_lists_under_the_lock_that_the_preset_names() {
    for (preset, chosen, wanted) in [
        (Preset::Linux316, None, 2),
        (Preset::Linux416, None, 1),
        (Preset::Linux416, Some(LruLock::Zone), 2),
    ] {
        let lru = chosen.unwrap_or_else(|| LruLock::of(preset));
        let spec = Spec { workload: Workload::PageCacheFits, lru, ..spec(preset, 3, 1) };
        assert_eq!(lists(&desktop(), &spec), wanted, "{}", preset.name());
    }
}

#[test]
fn presets_name_the_lock_of_their_kernels() {
    let names = |lock: LruLock| -> Vec<&str> {
        let named = Preset::ALL.into_iter().filter(|preset| LruLock::of(*preset) == lock);
        named.map(Preset::name).collect()
    };
    assert_eq!(names(LruLock::Zone), ["Linux316", "FairZonePosted", "FairZone", "LessDirty"]);
    let node = ["Linux416", "HugeBatch", "SkipMerge", "Cluster", "ClusterFree", "Linux413"];
    assert_eq!(names(LruLock::Node), node);
    assert_eq!(names(LruLock::Split), ["Linux63", "SplitZones", "Zonal"]);
}
