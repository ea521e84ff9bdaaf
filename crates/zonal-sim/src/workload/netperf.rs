//! `netperf`: receive traffic. What a network card brings is allocated on one CPU and freed on
//! another.
//!
//! - Source of the idea: Gorman and Brouwer's netperf and page-pool discussions of 2016 and 2017:
//!   with drivers that allocate a page a packet, per-CPU lists run empty on the CPU of the
//!   interrupt and full on the application's, so that every batch goes through the zone lock.
//! - Mechanism: tasks form pairs of neighbours, a receive queue on the even CPU, its application on
//!   the odd one. In softirq the queue's CPU takes up to 64 packets (Linux's poll budget) off
//!   the ring, does the protocol's work on each, hands them to the socket, and fills the ring
//!   again: order-0 requests, unmovable, that cannot wait. The application copies each packet
//!   and frees its page. The socket is a queue of limited length; if it is full, the queue waits
//!   (the card would drop packets), and if it is empty, the application sleeps. Descriptors,
//!   the queue's lock word and the pages' `struct page`s travel from one cache to the other.
//! - Figures: `packets_per_s`, of packets whose page was freed.
//! - Scaling: none. One page a packet; cycles a packet are guesses ([`RECEIVE`], [`COPY`]), of
//!   the size that makes one or two million packets a second and CPU.
//! - Left out: the other direction, page recycling by drivers, steering of packets to a CPU of
//!   the socket, and the cards themselves, which are infinitely fast.

use super::process::MEMORY;
use super::{Needs, Stage, Workload};
use crate::coroutine::{self, Body};
use crate::engine;
use crate::machine::Machine;
use crate::platform::SimWord;
use crate::run::{SimError, Spec};
use crate::sleeper::Sleeper;
use crate::space::{Home, Layout};
use crate::task::{Task, count, idle, spend, stopped, stream};
use crate::ticks::Ticks;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering::AcqRel;
use std::collections::VecDeque;
use std::rc::Rc;
use zonal::platform::AtomicWord;
use zonal::{Order, Pfn, Request};

/// Packets of one poll.
const BUDGET: usize = 64;
/// Descriptors of a ring.
const RING: usize = 512;
/// Packets that wait for the application at most.
const SOCKET: usize = 1024;
/// Driver and protocol, for a packet: a guess.
const RECEIVE: Ticks = Ticks(1_500 * Ticks::PER_CYCLE);
/// The application's part, for a packet: a guess.
const COPY: Ticks = Ticks(900 * Ticks::PER_CYCLE);
/// Lines of a packet of 1500 bytes.
const LINES: u32 = 24;
/// Frames of a pair: ring, socket, and as much again in caches, whatever the preset.
const FRAMES: u64 = 1 << 13;

/// The workload.
pub(crate) struct Netperf;

/// A packet in its page, since when it is there.
type Packet = (Pfn, Ticks);

/// The socket between two CPUs.
struct Socket {
    packets: RefCell<VecDeque<Packet>>,
    closed: Cell<bool>,
    /// The queue's lock and length.
    word: SimWord,
    /// Lines of the packets' descriptors, by packet modulo [`SOCKET`].
    first: usize,
    class: u8,
    home: u8,
    sent: Cell<usize>,
    received: Cell<usize>,
    application: Sleeper,
    queue: Sleeper,
}

impl Workload for Netperf {
    fn needs(&self, machine: &Machine, spec: &Spec) -> Result<Needs, SimError> {
        if !spec.tasks.is_multiple_of(2) {
            return Err(spec.misfit(machine, "it takes pairs of tasks, an even number"));
        }
        let packets = if spec.quick { 300_000 } else { 1_500_000 };
        Ok(Needs {
            // A pair may have both of its tasks on one socket.
            frames_a_socket: machine.topology.frames_for_all(spec.tasks, FRAMES).max(1 << 16),
            counted: "packets",
            warm_up: packets / 5,
            measure: packets,
            rates: true,
        })
    }

    fn tasks<'a>(&'a self, stage: &'a Stage<'a>) -> Vec<Body<'a>> {
        let pair = |pair: u32| -> [Body<'a>; 2] {
            let (from, to) = (2 * pair, 2 * pair + 1);
            let home = stage.machine.topology.socket_of(to) as u8;
            let socket = Socket::new(home);
            let other = Rc::clone(&socket);
            let (from, to) = (stage.task(from), stage.task(to));
            [Box::new(move || queue(from, &socket)), Box::new(move || application(to, &other))]
        };
        (0..stage.spec.tasks / 2).flat_map(pair).collect()
    }
}

/// The receive queue: softirq on its CPU.
fn queue(mut task: Task<'_>, socket: &Socket) {
    let mut ring = VecDeque::with_capacity(RING);
    while !stopped() {
        while ring.len() < RING {
            ring.push_back(task.ask(&Request::frame().atomic()).expect(MEMORY));
        }
        for pfn in ring.drain(..BUDGET) {
            coroutine::pause_if_early();
            spend(RECEIVE);
            task.pages.touch(pfn, true);
            socket.send(&task, pfn);
        }
        socket.tell(&task);
    }
    task.give(ring.make_contiguous(), Order::ZERO);
    socket.close(&task);
}

/// The application.
fn application(mut task: Task<'_>, socket: &Socket) {
    while let Some(pfn) = socket.receive(&task) {
        coroutine::pause_if_early();
        spend(COPY);
        stream(LINES);
        task.pages.touch(pfn, true);
        task.give(&[pfn], Order::ZERO);
        count("packets", 1);
    }
}

impl Socket {
    fn new(home: u8) -> Rc<Self> {
        let (first, class) = engine::with(|engine| (engine.grow(SOCKET), engine.class("socket")))
            .unwrap_or_default();
        let socket = Rc::new(Self {
            packets: RefCell::new(VecDeque::with_capacity(SOCKET)),
            closed: Cell::new(false),
            word: SimWord::new(0),
            first,
            class,
            home,
            sent: Cell::new(0),
            received: Cell::new(0),
            application: Sleeper::default(),
            queue: Sleeper::default(),
        });
        let word = core::slice::from_ref(&socket.word);
        engine::with(|engine| {
            engine.register("socket", word, Layout::Packed, Home::Socket(home));
        });
        socket
    }

    /// Takes the queue's lock, and reads or writes the descriptor of the packet that `turn` counts.
    fn touch(&self, turn: &Cell<usize>, write: bool) {
        let line = self.first + turn.get() % SOCKET;
        turn.set(turn.get() + 1);
        self.word.fetch_add(1, AcqRel);
        engine::with_cpu(|engine, cpu| {
            engine.touch_line(cpu, line, self.class, write, || self.home);
        });
    }

    /// Hands a packet over; waits while there is no room.
    fn send(&self, task: &Task<'_>, pfn: Pfn) {
        while self.packets.borrow().len() >= SOCKET {
            self.tell(task);
            self.queue.sleep();
        }
        self.touch(&self.sent, true);
        let now = engine::now();
        self.packets.borrow_mut().push_back((pfn, now));
    }

    /// Wakes the application, if it sleeps.
    fn tell(&self, task: &Task<'_>) {
        self.application.wake(task.work.wake);
    }

    /// There will be no more packets.
    fn close(&self, task: &Task<'_>) {
        self.closed.set(true);
        self.tell(task);
    }

    /// Takes a packet, and waits for one; `None` after the last.
    fn receive(&self, task: &Task<'_>) -> Option<Pfn> {
        loop {
            let packet = self.packets.borrow_mut().pop_front();
            let Some((pfn, since)) = packet else {
                if self.closed.get() {
                    return None;
                }
                self.application.sleep();
                continue;
            };
            // CPUs may run a little ahead of each other, but not of what they wait for.
            let early = engine::with_cpu(|engine, cpu| since.since(*engine.clock(cpu)));
            if let Some(early) = early.filter(|early| early.0 > 0) {
                idle(early);
            }
            self.touch(&self.received, false);
            if self.packets.borrow().len() == SOCKET / 2 {
                self.queue.wake(task.work.wake);
            }
            return Some(pfn);
        }
    }
}
