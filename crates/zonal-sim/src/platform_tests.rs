//! What accesses do and what they are charged.

use super::*;
use crate::coroutine::{Body, run_all};
use crate::engine::Engine;
use crate::machine;
use crate::schedule::Schedule;
use crate::space::{Home, Layout};
use crate::ticks::Ticks;
use core::sync::atomic::Ordering::SeqCst;

/// The ticks that each of `accesses` costs a lone CPU, whose cache has the line already.
fn charged(accesses: &[&dyn Fn()]) -> Vec<u64> {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let _installed = engine::install(Engine::new(&machine, 1, Schedule::by_clock()));
    let mut costs = Vec::new();
    let now = || engine::with_cpu(|engine, cpu| engine.clock(cpu).0).expect("on a virtual CPU");
    let body: Body<'_> = Box::new(|| {
        accesses.iter().for_each(|access| access());
        for access in accesses {
            let before = now();
            access();
            costs.push(now() - before);
        }
    });
    run_all(vec![body], |_| ()).expect("it ends");
    costs
}

#[test]
fn every_update_costs_the_same() {
    let (word, byte) = (SimWord::new(0), SimByte::new(0));
    let costs = charged(&[
        &|| _ = word.fetch_add(1, SeqCst),
        &|| _ = word.fetch_or(1, SeqCst),
        &|| _ = word.fetch_and(1, SeqCst),
        &|| _ = word.swap(1, SeqCst),
        &|| _ = word.compare_exchange(1, 1, SeqCst, SeqCst),
        &|| _ = byte.swap(1, SeqCst),
        &|| _ = byte.compare_exchange(1, 1, SeqCst, SeqCst),
        &|| _ = word.load(SeqCst),
    ]);
    let [updates @ .., load] = &costs[..] else { panic!("eight accesses") };
    assert!(updates.iter().all(|cost| cost == &updates[0]), "{costs:?}");
    assert!(updates[0] > *load && *load > 0, "{costs:?}");
}

#[test]
fn a_light_fence_is_free_and_a_heavy_one_is_not() {
    let costs = charged(&[&Sim::light_fence, &|| Sim::heavy_fence().expect("it has one")]);
    assert_eq!(costs[0], 0);
    assert!(costs[1] >= 1_000 * Ticks::PER_CYCLE, "{costs:?}");
}

#[test]
fn updates_do_what_their_names_say() {
    let (word, byte) = (SimWord::new(0b0110), SimByte::new(3));
    assert_eq!((word.fetch_or(0b1100, SeqCst), word.load(SeqCst)), (0b0110, 0b1110));
    assert_eq!((word.fetch_and(0b0101, SeqCst), word.load(SeqCst)), (0b1110, 0b0100));
    assert_eq!((word.swap(9, SeqCst), word.load(SeqCst)), (0b0100, 9));
    assert_eq!((byte.swap(5, SeqCst), byte.load(SeqCst)), (3, 5));
    assert_eq!((byte.compare_exchange(3, 7, SeqCst, SeqCst), byte.load(SeqCst)), (Err(5), 5));
    assert_eq!((byte.compare_exchange(5, 7, SeqCst, SeqCst), byte.load(SeqCst)), (Ok(5), 7));
}

#[test]
fn a_prefetch_costs_a_part_of_the_line_it_brings() {
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let _installed = engine::install(Engine::new(&machine, 1, Schedule::by_clock()));
    let words: Vec<SimWord> = (0..1024).map(SimWord::new).collect();
    engine::with(|engine| engine.register("frames", &words, Layout::Packed, Home::Local));
    let now = || engine::with_cpu(|engine, cpu| engine.clock(cpu).0).expect("on a virtual CPU");
    let took = |work: &dyn Fn()| {
        let before = now();
        work();
        now() - before
    };
    let body: Body<'_> = Box::new(|| {
        let load = |at: usize| _ = words[at].load(SeqCst);
        let cold = took(&|| load(0));
        let warm = took(&|| load(0));
        assert!(cold > 10 * warm, "{cold} {warm}");
        let prefetch = took(&|| Sim::prefetch(&words[512]));
        assert!(prefetch < cold / 5 && prefetch > 0, "{prefetch} of {cold}");
        assert_eq!(took(&|| load(512)), warm, "the line is there");
        // Of four loads and a prefetch the profile has the lines, and not the instructions around them.
        let profiled = engine::with(|engine| engine.measured.lines().remove(0).cycles);
        let all = Ticks(cold + 2 * warm + prefetch).cycles();
        assert!(profiled.is_some_and(|cycles| cycles <= all), "{profiled:?} of {all}");
    });
    run_all(vec![body], |_| ()).expect("it ends");
}

/// A line that four cores update goes to one after the other: all of them together are no faster than
/// the line.
#[test]
fn who_updates_a_line_waits_for_it() {
    #[repr(align(64))]
    struct OneLine(SimWord);
    const EACH: u64 = 100;
    let machine = machine::builtin("desktop_8cpu_4g").expect("it is built in");
    let shared = [OneLine(SimWord::new(0))];
    let mut engine = Engine::new(&machine, 4, Schedule::by_clock());
    engine.register("shared", &shared, Layout::Packed, Home::Local);
    let _installed = engine::install(engine);
    let updates = || -> Body<'_> {
        Box::new(|| (0..EACH).for_each(|_| _ = shared[0].0.fetch_add(1, SeqCst)))
    };
    run_all((0..4).map(|_| updates()).collect(), |_| ()).expect("it ends");
    assert_eq!(shared[0].0.0.load(Ordering::Relaxed), 4 * EACH);
    let seen = engine::with(|engine| {
        let last = engine.cpus.iter().map(|cpu| cpu.clock.cycles()).max();
        (engine.measured.lines().remove(0), last.expect("four CPUs"))
    });
    let (line, last) = seen.expect("a machine is on this thread");
    let transfers = line.near as f64 * machine.cost.near;
    assert!(line.near > 2 * EACH, "they take turns: {line:?}");
    assert!(last as f64 >= transfers, "{last} cycles for {line:?}");
    assert!(line.queued as f64 > transfers, "two and more wait at a time: {line:?}");
}
