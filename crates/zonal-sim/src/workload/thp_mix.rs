//! Huge pages beside single ones, as the 2018 series measured them: memory is first broken into
//! single pages by a program that takes nearly all of it and exits; then half of the tasks run
//! `page_fault1` on huge pages, the other half on single ones.
//!
//! A huge fault that finds no huge page falls back to single ones. The score of either half
//! counts the pages of 4 KiB that were touched. The tasks on huge pages are on the second
//! hardware threads. Mapping and memory are a quarter of the source's.
//!
//! Tasks begin one after the other, as they are forked, in an order that the seed decides. It matters
//! more than it should: who comes to a broken-up block first decides whether it becomes a huge page,
//! so the scores of presets that skip merges differ by a fifth from seed to seed. A number to go by
//! is the mean of several.

use super::page_fault::MAPPED;
use super::{Needs, Stage, Workload};
use crate::coroutine::Body;
use crate::machine::Machine;
use crate::run::{SimError, Spec};
use crate::task::{Task, count, idle, stopped};
use crate::ticks::Ticks;
use zonal::{Order, Pfn};

/// By how much mapping and memory are smaller than the source's.
const SCALE: usize = 4;
/// Memory left alone by the program that breaks it up, in parts of 256.
const LEFT: u64 = 8;
/// Cycles after the first task in which the others begin: a guess, a hundred forks in 4 ms.
const FORKING: f64 = 1e7;

/// Pages touched before those that count, in millions: until the base's scores change no more. Chosen
/// with the scores of patched kernels in view, which depend on it.
const WARM_UP: u32 = 2;

/// The workload.
pub(crate) struct ThpMix;

impl Workload for ThpMix {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        if !spec.tasks.is_multiple_of(2) {
            return Err(
                spec.misfit(machine, "half of the tasks map huge pages: it takes an even number")
            );
        }
        let frames = machine.topology.frames() / SCALE as u64;
        let mapped = u64::from(spec.tasks) * (MAPPED / SCALE) as u64;
        if mapped > frames / 4 * 3 {
            let least = (mapped * SCALE as u64).div_ceil(3 << 16);
            return Err(spec.misfit(machine, format!("it takes {least} GiB of memory")));
        }
        Ok(Needs {
            frames_a_socket: frames / u64::from(machine.topology.sockets),
            counted: "order0_score",
            warm_up: u64::from(spec.after.unwrap_or(WARM_UP)) * 1_000_000,
            measure: if spec.quick { 500_000 } else { 2_000_000 },
            rates: true,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        break_up(stage);
        let half = stage.spec.tasks / 2;
        let body = |cpu| -> Body<'a> {
            let (task, begins) = (stage.task(cpu), stage.random(cpu).f64() * FORKING);
            Box::new(move || {
                idle(Ticks::from_cycles(begins));
                if cpu < half { single(task) } else { huge(task) }
            })
        };
        (0..stage.spec.tasks).map(body).collect()
    }
}

/// Takes nearly all of memory in single pages and gives it back.
fn break_up(stage: &Stage<'_>) {
    let topology = &stage.machine.topology;
    let cpus = 0..topology.cores().min(stage.spec.tasks);
    let each = stage.pages.frames * (256 - LEFT) / 256 / u64::from(cpus.end);
    let taken: Vec<(u32, Vec<Pfn>)> = cpus
        .map(|cpu| {
            let mut task = stage.task(cpu);
            (cpu, (0..each).map_while(|_| task.take(Order::ZERO).ok()).collect())
        })
        .collect();
    for (cpu, frames) in taken {
        stage.task(cpu).give(&frames, Order::ZERO);
    }
}

/// `page_fault1` on single pages.
fn single(mut task: Task<'_>) {
    let mut mapped = Vec::with_capacity(MAPPED / SCALE);
    while !stopped() {
        if mapped.len() == MAPPED / SCALE {
            task.unmap(&mapped, Order::ZERO);
            task.map_range();
            mapped.clear();
        }
        mapped.push(task.fault().expect("most of memory is free"));
        count("order0_score", 1);
    }
}

/// As [`single`], on huge pages.
fn huge(mut task: Task<'_>) {
    let frames = Order::HUGE.frames() as usize;
    let (mut blocks, mut singles) = (Vec::new(), Vec::new());
    // Who gets no page at all scores 0.
    for name in ["thp_score", "thp_fallbacks"] {
        count(name, 0);
    }
    while !stopped() {
        if blocks.len() + singles.len() / frames >= MAPPED / SCALE / frames {
            task.unmap(&blocks, Order::HUGE);
            task.unmap(&singles, Order::ZERO);
            task.map_range();
            blocks.clear();
            singles.clear();
        }
        if let Ok(block) = task.huge_fault() {
            blocks.push(block);
            count("thp_score", frames as u64);
            continue;
        }
        count("thp_fallbacks", 1);
        for _ in 0..frames {
            if stopped() {
                break;
            }
            singles.push(task.fault().expect("most of memory is free"));
            count("thp_score", 1);
        }
    }
}
