//! A checker that cannot fail checks nothing: each is shown what it is there to find.

use std::cell::Cell;
use zonal::Host;
use zonal::Migration;
use zonal::error::{AllocError, AllocReason};
use zonal::frame::FrameState;
use zonal::inspect::Place;
use zonal::platform::{Lock, Platform, Slot};
use zonal::policy::BulkFree;
use zonal::policy::bulk_free::{CHUNK, Listed};
use zonal::preset::{Linux416, SkipMerge};
use zonal::slow_path::Shortage;
use zonal::{HOLD_BOUND, MigrateType, NodeId, Order, Pfn, Request, ZoneId, ZoneType};
use zonal_testkit::canary::Lazybones;
use zonal_testkit::checkers::{
    Checked, Rules, check_all, check_counters, check_counts, check_faults, check_holds,
    check_lists, check_merged, check_one_place, check_reserve, check_states,
};
use zonal_testkit::command::{Ask, Command};
use zonal_testkit::host::TestHost;
use zonal_testkit::model::{Model, Search};
use zonal_testkit::preset::TinyZonal;
use zonal_testkit::probe::Probe;
use zonal_testkit::runner::{Runner, run_commands, run_with_rules};
use zonal_testkit::shape::{Shape, order};
use zonal_testkit::snapshot::{Found, Snapshot};
use zonal_testkit::suite::{Work, threads_at_random};
use zonal_testkit::world::with_world;

/// A healthy moment with something in every place.
fn moment(f: impl FnOnce(Snapshot, Model<'_>)) {
    let commands = [
        Command::Alloc(Ask { order: 4, flags: 1, ..Ask::FRAME }),
        Command::AllocBulk { ask: Ask::FRAME, count: 300 },
        Command::FreeBulk { nth: 1, count: 150, twice: false },
        Command::SwitchCpu { cpu: 1 },
        Command::Alloc(Ask { order: 1, ..Ask::FRAME }),
        Command::Free { nth: 7 },
    ];
    with_world::<Probe, Linux416, _>(Shape::Blocks3, |world| {
        let mut runner = Runner::new(world, Rules::STRICT);
        for command in &commands {
            runner.step(command).unwrap();
        }
        let snapshot = runner.snapshot().clone();
        let has = |what: fn(&Place) -> bool| snapshot.found.iter().any(|at| what(&at.place));
        assert!(has(|place| matches!(place, Place::Listed { .. })));
        assert!(has(|place| matches!(place, Place::Cached { .. })));
        assert!(has(|place| matches!(place, Place::Untouched)));
        assert!(snapshot.zones[0].high_atomic_pageblocks > 0);
        check_all(&snapshot, runner.model(), &Rules::STRICT).unwrap();
        f(snapshot, runner.model().clone());
    });
}

/// Damages a healthy moment; the checker must name the rule.
fn planted(
    rule: &str,
    check: impl Fn(&Snapshot, &Model<'_>) -> Checked,
    damage: impl FnOnce(&mut Snapshot, &mut Model<'_>),
) {
    moment(|mut snapshot, mut model| {
        check(&snapshot, &model).expect("healthy before");
        damage(&mut snapshot, &mut model);
        let violation = check(&snapshot, &model).expect_err("the damage is found");
        assert_eq!(violation.rule, rule, "{violation}");
    });
}

fn listed(snapshot: &Snapshot) -> usize {
    let big = |at: &Found| matches!(at.place, Place::Listed { order, .. } if order.get() > 0);
    snapshot.found.iter().position(big).expect("a listed block")
}

#[test]
fn a_frame_in_two_places() {
    let check = check_one_place;
    planted("I-1", check, |snapshot, model| {
        let pfn = snapshot.found[listed(snapshot)].pfn;
        model.insert(Pfn::new(pfn.get() + 1), Order::ZERO);
    });
    planted("I-1", check, |snapshot, _| snapshot.found.push(snapshot.found[0]));
    planted("I-1", check, |snapshot, _| snapshot.kinds[3] = None);
}

#[test]
fn a_frame_in_no_place() {
    planted("I-1", check_one_place, |_, model| model.remove(model.nth(5).unwrap().0));
    planted("I-1", check_one_place, |snapshot, _| {
        snapshot.found.pop();
    });
}

#[test]
fn a_state_that_lies() {
    for state in [FrameState::INNER, FrameState::cached(order(3)), FrameState::free(order(2))] {
        planted("I-1", check_states, |snapshot, model| {
            let at = snapshot.index(model.nth(3).unwrap().0).unwrap();
            snapshot.states[at] = state;
        });
    }
    planted("I-1", check_states, |snapshot, _| {
        let inner = snapshot.index(snapshot.found[listed(snapshot)].pfn).unwrap() + 1;
        snapshot.states[inner] = FrameState::free(Order::ZERO);
    });
}

#[test]
fn a_block_on_the_wrong_list() {
    planted(
        "I-1",
        |snapshot, _| check_lists(snapshot),
        |snapshot, _| {
            let pfn = snapshot.found[listed(snapshot)].pfn;
            let block = snapshot.index(pfn).unwrap() >> snapshot.pageblock_order.get();
            snapshot.pageblocks[block] = Some((ZoneId(0), MigrateType::Cma));
        },
    );
    planted(
        "I-1",
        |snapshot, _| check_lists(snapshot),
        |snapshot, _| {
            let at = listed(snapshot);
            snapshot.found[at].zone = ZoneId(1);
        },
    );
    planted(
        "I-1",
        |snapshot, _| check_lists(snapshot),
        |snapshot, _| {
            let block = listed(snapshot);
            snapshot.found[block].pfn = Pfn::new(snapshot.found[block].pfn.get() + 1);
        },
    );
}

#[test]
fn a_count_that_is_off() {
    type Damage = fn(&mut Snapshot);
    let damages: [Damage; 6] = [
        |snapshot| snapshot.zones[0].free += 1,
        |snapshot| snapshot.zones[0].cached -= 1,
        |snapshot| snapshot.zones[0].isolated += 32,
        |snapshot| snapshot.zones[0].managed -= 1,
        |snapshot| snapshot.zones[0].blocks[2][1] += 1,
        |snapshot| snapshot.caches[0].1.count += 1,
    ];
    for damage in damages {
        planted("I-2", check_counts, |snapshot, _| damage(snapshot));
    }
}

#[test]
fn buddies_apart() {
    let check = |snapshot: &Snapshot, _: &Model<'_>| check_merged(snapshot, &Rules::STRICT);
    planted("I-5", check, |snapshot, _| {
        let Found { zone, pfn, place } = snapshot.found.remove(listed(snapshot));
        let Place::Listed { order: whole, migrate } = place else { unreachable!() };
        let half = order(whole.get() - 1);
        let place = Place::Listed { order: half, migrate };
        snapshot.found.push(Found { zone, pfn, place });
        snapshot.found.push(Found { zone, pfn: Pfn::new(pfn.get() + half.frames()), place });
    });
    planted("I-5", check, |snapshot, _| {
        // Pageblocks of two types that requests name.
        let order = snapshot.pageblock_order;
        let types = [MigrateType::Unmovable, MigrateType::Reclaimable];
        for (at, migrate) in (0_u64..).zip(types) {
            let pfn = Pfn::new(snapshot.base.get() + at * order.frames());
            let place = Place::Listed { order, migrate };
            snapshot.found.push(Found { zone: ZoneId(0), pfn, place });
        }
    });
}

#[test]
fn a_long_hold() {
    let check = |snapshot: &Snapshot, _: &Model<'_>| check_holds(snapshot, &Rules::STRICT);
    planted("I-7", check, |snapshot, _| snapshot.zones[0].events.hold_max = HOLD_BOUND + 1);
}

#[test]
fn counters_that_do_not_add_up() {
    planted("counters", check_counters, |snapshot, _| snapshot.caches[0].1.events.alloc += 1);
    planted("counters", check_counters, |snapshot, _| snapshot.zones[0].events.direct_free += 1);
    planted("counters", check_counters, |snapshot, _| snapshot.zones[0].events.refused = 1);
}

#[test]
fn a_reserve_of_another_size() {
    let check = |snapshot: &Snapshot, _: &Model<'_>| check_reserve(snapshot);
    planted("reserve", check, |snapshot, _| snapshot.zones[0].high_atomic_pageblocks += 1);
    planted("reserve", check, |snapshot, _| {
        snapshot.pageblocks.fill(Some((ZoneId(0), MigrateType::HighAtomic)));
        snapshot.zones[0].high_atomic_pageblocks = snapshot.pageblocks.len() as u32;
    });
}

/// What an allocation may not return.
#[test]
fn a_bad_answer_to_an_allocation() {
    let plan = Shape::Low.plan::<TinyZonal>();
    let mut model = Model::new(&plan);
    model.insert(Pfn::new(0x200), order(3));
    let check = |request: Request, pfn| {
        let checked = model.check_served_raw(&request, NodeId(0), Pfn::new(pfn));
        checked.map_err(|violation| violation.rule)
    };
    let block = Request::new(order(2));
    assert_eq!(check(block, 0x208), Ok(()));
    assert_eq!(check(block, 0x204), Err("I-3"), "inside a block that is out");
    assert_eq!(check(Request::new(order(5)), 0x1e0), Ok(()));
    assert_eq!(check(Request::new(order(5)), 0x200), Err("I-3"), "around it");
    assert_eq!(check(block, 0x20a), Err("I-3"), "not aligned");
    assert_eq!(check(block, 0x4000), Err("I-3"), "no memory");
    assert_eq!(check(block.zone_limit(ZoneType::Dma), 0x208), Err("I-3"), "not DMA");
    assert_eq!(
        check(block.nodes(zonal::NodePolicy::Preferred(NodeId(1))).this_node(), 0x208),
        Err("I-3"),
        "another node"
    );
    let cma = Shape::Cma.plan::<TinyZonal>();
    let model = Model::new(&cma);
    let (of_cma, local) = (Pfn::new(0x1100), NodeId(0));
    let movable = Request::frame().migrate(MigrateType::Movable);
    assert!(model.check_served_raw(&movable, local, of_cma).is_ok());
    assert!(model.check_served_raw(&Request::frame(), local, of_cma).is_err());
}

/// A refusal while there is something, or for another reason than the right one.
#[test]
fn a_refusal_without_need() {
    moment(|snapshot, model| {
        let refuse = |request: Request, reason, tried| {
            let error = AllocError {
                reason,
                order: request.order(),
                migrate: request.migrate_type(),
                mark: zonal::watermark::Mark::Min,
                tried,
                zone: None,
            };
            let (local, search) = (NodeId(0), Search::Everywhere);
            let checked = model.check_refused(&request, local, &error, &snapshot, search);
            checked.map_err(|violation| violation.rule)
        };
        let frame = Request::frame();
        assert_eq!(refuse(frame, AllocReason::Exhausted, 1), Err("I-6"));
        assert_eq!(refuse(Request::new(order(2)), AllocReason::Exhausted, 1), Err("I-6"));
        assert_eq!(refuse(frame, AllocReason::CannotZero, 0), Err("I-6"), "it was not to zero");
        assert_eq!(refuse(frame, AllocReason::NoZone, 0), Err("I-6"), "there is a zone");
        let full = Request::frame().zone_limit(ZoneType::Dma);
        assert_eq!(refuse(full, AllocReason::NoZone, 0), Ok(()));
        assert_eq!(refuse(full, AllocReason::Exhausted, 0), Err("I-6"));
    });
}

/// Callbacks with a lock held, and locks in locks, as the probe sees them.
#[test]
fn a_callback_under_a_lock() {
    type P = Probe;
    with_world::<P, TinyZonal, _>(Shape::Flat, |world| {
        let host = world.allocator.platform();
        let (zone_lock, other) = (<P as Platform>::Lock::new(0), <P as Platform>::Lock::new(0));
        let slot = <<P as Platform>::Slot<u8> as Slot<u8>>::new(0);
        let shortage = Shortage { request: Request::frame(), attempt: 0 };
        let clean = || check_faults(&host.faults());
        host.wake_reclaim(ZoneId(0));
        slot.with(|_| zone_lock.with(|n| *n += 1));
        clean().expect("a zone lock inside a slot is how it is done");
        zone_lock.with(|_| host.wake_reclaim(ZoneId(0)));
        clean().unwrap_err();
        slot.with(|_| host.reclaim(&world.allocator, &shortage));
        clean().unwrap_err();
        let (from, to) = (Pfn::new(0), Pfn::new(1));
        let page = Migration { from, to, order: Order::ZERO, may_wait: true };
        zone_lock.with(|_| host.migrate(&world.allocator, &page)).unwrap_err();
        clean().unwrap_err();
        zone_lock.with(|_| host.wake_compaction(ZoneId(0), Order::HUGE));
        clean().unwrap_err();
        slot.try_with(|_| host.zero(Pfn::new(0), Order::ZERO)).unwrap().unwrap();
        clean().unwrap_err();
        zone_lock.with(|_| other.with(|n: &mut i32| *n += 1));
        assert_eq!(clean().unwrap_err().rule, "I-7");
        clean().expect("and then forgotten");
    });
}

/// What is to be zero and is not, and what is zeroed and should not be.
#[test]
fn frames_that_are_not_zeroed() {
    let zero = Ask { flags: 32, ..Ask::FRAME };
    let commands = [
        Command::Alloc(zero),
        Command::AllocBulk { ask: zero, count: 3 },
        Command::AllocPages { ask: zero, count: 5, align: 0, below: 0 },
    ];
    for command in commands {
        with_world::<Probe, TinyZonal, _>(Shape::Flat, |world| {
            let host = world.allocator.platform();
            let mut runner = Runner::new(world, Rules::of::<TinyZonal>());
            let mut rule_of =
                |command: Command| runner.step(&command).map_err(|violation| violation.rule);
            assert_eq!(rule_of(command), Ok(()), "healthy before");
            host.set_can_zero(false);
            assert_eq!(rule_of(command), Ok(()), "it says that it cannot");
            host.set_can_zero(true);
            assert_eq!(rule_of(command), Ok(()), "and now that it can");
            host.set_forgets_to_zero(true);
            assert_eq!(rule_of(command), Err("zero"), "{command:?}");
            host.set_forgets_to_zero(false);
            host.fail_at(1);
            assert_eq!(rule_of(command), Err("zero"), "refused, by a host that can");
            let last = Pfn::new(world.allocator.plan().base().get() + 2047);
            host.zero(last, Order::ZERO).unwrap();
            assert_eq!(rule_of(Command::Alloc(Ask::FRAME)), Err("zero"), "it was not asked for");
        });
    }
    with_world::<Probe, TinyZonal, _>(Shape::Flat, |world| {
        let mut runner = Runner::new(world, Rules::of::<TinyZonal>());
        runner.step(&Command::Alloc(Ask::FRAME)).unwrap();
        let (pfn, order) = runner.model().nth(0).unwrap();
        world.allocator.platform().zero(pfn, order).unwrap();
        assert_eq!(runner.step(&commands[0]).unwrap_err().rule, "zero", "another's frame");
    });
}

macro_rules! broken_preset {
    ($name:ident, $policy:ident = $broken:ty) => {
        zonal::preset! {
            $name = stringify!($name), over TinyZonal { $policy = $broken }
        }
    };
}

thread_local! {
    /// How often this thread commits what is prepared: never, so that frames are lost, or twice.
    static COMMITS: Cell<usize> = const { Cell::new(0) };
}

/// Prepares all frames of a list, and commits none or each twice: one type, so that the allocator is compiled once.
struct Miscounts;

impl BulkFree for Miscounts {
    fn free(list: &mut impl Listed) {
        for from in (0..list.len()).step_by(CHUNK) {
            let prepared = list.prepare(from);
            for _ in 0..if prepared == 0 { 0 } else { COMMITS.get() } {
                let _ = list.commit(from, prepared);
            }
        }
    }
}

broken_preset!(LostFrames, BulkFree = Miscounts);

broken_preset!(OneZone, Walk = Lazybones);

const FILL_AND_FREE: [Command; 4] = [
    Command::Fill { ask: Ask { migrate: 1, limit: 3, ..Ask::FRAME }, spare: 200 },
    Command::FreeBulk { nth: 1, count: 150, twice: false },
    Command::DrainAll,
    Command::FreeAll,
];

/// Planted bugs that the whole suite has to find by itself.
#[test]
fn broken_policies_are_found() {
    let run = run_commands::<Probe, LostFrames>;
    for commits in [2, 0] {
        COMMITS.set(commits);
        run(Shape::Flat, &FILL_AND_FREE).expect_err("found, by whichever checker comes first");
    }
    let run = run_commands::<Probe, OneZone>;
    assert_eq!(run(Shape::TwoNodes, &FILL_AND_FREE).unwrap_err().violation.rule, "I-6");
    let bulk = Command::AllocBulk { ask: Ask { migrate: 1, limit: 3, ..Ask::FRAME }, count: 1500 };
    let violation = run(Shape::TwoNodes, &[bulk]).unwrap_err().violation;
    assert!(violation.rule == "I-6" && violation.detail.contains("1500 times"), "{violation}");
    let run = run_commands::<Probe, TinyZonal>;
    run(Shape::TwoNodes, &[bulk, bulk, bulk]).expect("both nodes, and then too little");
    for shape in Shape::ALL {
        run(shape, &FILL_AND_FREE).expect("the same on a preset that is not broken");
    }
}

#[test]
fn merges_skipped_in_secret_are_found() {
    let strict = run_with_rules::<Probe, SkipMerge>;
    let failure = strict(Shape::Flat, &FILL_AND_FREE, Rules::STRICT).unwrap_err();
    assert_eq!(failure.violation.rule, "I-5", "{failure}");
    let told = run_with_rules::<Probe, SkipMerge>;
    told(Shape::Flat, &FILL_AND_FREE, Rules::of::<SkipMerge>()).expect("it says what it defers");
}

/// Random commands find them too, and threads do.
#[test]
#[should_panic(expected = "I-")]
fn random_commands_find_a_broken_policy() {
    zonal_testkit::suite::random_commands::<Probe, LostFrames>(60, None);
}

#[test]
#[should_panic(expected = "all invariants hold")]
fn threads_find_a_broken_policy() {
    let work = Work {
        threads: 2,
        operations: 500,
        quota: 900,
        most: Order::ZERO,
        owned: false,
        never_fails: false,
    };
    threads_at_random::<Probe, LostFrames>(Shape::Flat, 1, work);
}
