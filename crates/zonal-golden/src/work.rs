//! The workloads and the table of cases.

use crate::host::{OneCpu, with_allocator};
use std::collections::VecDeque;
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use zonal::policy::Policy;
use zonal::policy::trace::Point;
use zonal::preset::{Linux413, Linux416, Traced, Trusting, Zonal};
use zonal::{Allocator, CpuHandle, CpuId, MigrateType, Order, Pfn, Request, ZoneType};
use zonal_host::Usdt;
use zonal_runs::test_static;
use zonal_trace::ring::{ENABLED_BYTE, Ring, Sink, ToRing, words_for};

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// One thing to count.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Enough that what happens now and then has its share.
    pub(crate) iterations: u64,
    /// Blocks that an iteration allocates and frees.
    pub(crate) blocks: u64,
    pub(crate) run: fn(u64) -> Outcome,
}

const ORDER1: Order = order(1);
const ORDER2: Order = order(2);
const ORDER3: Order = order(3);
const ORDER6: Order = order(6);
/// Blocks alive in a queue.
const QUEUED: usize = 100;
/// Blocks alive of which any is replaced.
const REPLACED: usize = 1000;
const BULK: usize = 256;
const BURST: usize = 4096;
/// Blocks alive of mixed orders.
const MIXED_BLOCKS: usize = 256;
/// Each as likely as the others.
const MIXED_ORDERS: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];

macro_rules! cases {
    ($($preset:ident)*) => {[
        $(
            Case {
                name: concat!(stringify!($preset), "/owned/hot-pair"),
                iterations: 20_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| hot_pair::<_, false>(cpu, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/bulk"),
                iterations: 400,
                blocks: BULK as u64,
                run: |n| owned::<$preset>(|cpu| bulk(cpu, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/burst"),
                iterations: 32,
                blocks: BURST as u64,
                run: |n| owned::<$preset>(|cpu| burst(cpu, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/order9"),
                iterations: 5_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| blocks(cpu, Order::HUGE, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/order3"),
                iterations: 5_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| blocks(cpu, ORDER3, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/order3-queue"),
                iterations: 5_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| queue(cpu, ORDER3, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/order6-queue"),
                iterations: 5_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| queue(cpu, ORDER6, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/order3-random"),
                iterations: 5_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| replace(cpu, [ORDER3], n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/orders-random"),
                iterations: 5_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| replace(cpu, [ORDER1, ORDER2, ORDER3], n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/mixed"),
                iterations: 20_000,
                blocks: 1,
                run: |n| owned::<$preset>(|cpu| mixed(cpu, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/owned/random"),
                iterations: 32,
                blocks: BURST as u64,
                run: |n| owned::<$preset>(|cpu| random(cpu, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/shared/hot-pair"),
                iterations: 20_000,
                blocks: 1,
                run: |n| shared::<$preset>(|all| hot_pair::<_, false>(all, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/shared/bulk"),
                iterations: 400,
                blocks: BULK as u64,
                run: |n| shared::<$preset>(|all| bulk(all, n)),
            },
            Case {
                name: concat!(stringify!($preset), "/shared/burst"),
                iterations: 32,
                blocks: BURST as u64,
                run: |n| shared::<$preset>(|all| burst(all, n)),
            },
        )*
        Case {
            name: "Zonal/owned/hot-pair+usdt-off",
            iterations: 20_000,
            blocks: 1,
            run: |n| owned::<Traced<Zonal, Usdt>>(|cpu| hot_pair::<_, false>(cpu, n)),
        },
        Case {
            name: "Zonal/owned/hot-pair+ring-off",
            iterations: 20_000,
            blocks: 1,
            run: |n| owned::<Traced<Zonal, ToRing<Idle<false>>>>(|cpu| hot_pair::<_, false>(cpu, n)),
        },
        Case {
            name: "Zonal/owned/hot-pair+asked-ring-off",
            iterations: 20_000,
            blocks: 1,
            run: |n| owned::<Traced<Zonal, ToRing<Idle<true>>>>(|cpu| hot_pair::<_, false>(cpu, n)),
        },
        // Beside the plain pair: what it costs that the host fills the frame, and not the caller.
        Case {
            name: "Zonal/shared/zeroed-pair",
            iterations: 20_000,
            blocks: 1,
            run: |n| shared::<Zonal>(|all| zeroed_pair(all, n)),
        },
        Case {
            name: "Zonal/owned/zeroed-pair",
            iterations: 20_000,
            blocks: 1,
            run: |n| owned::<Zonal>(|cpu| zeroed_pair(cpu, n)),
        },
        // By a store in place of an exchange.
        Case {
            name: "Trusting/owned/hot-pair",
            iterations: 20_000,
            blocks: 1,
            run: |n| owned::<Trusting>(|cpu| hot_pair::<_, false>(cpu, n)),
        },
        Case {
            name: "Trusting/owned/burst",
            iterations: 32,
            blocks: BURST as u64,
            run: |n| owned::<Trusting>(|cpu| burst(cpu, n)),
        },
        // Beside Linux416's: what the two passes save, and what they cost.
        Case {
            name: "Linux413/owned/bulk",
            iterations: 400,
            blocks: BULK as u64,
            run: |n| owned::<Linux413>(|cpu| bulk(cpu, n)),
        },
        Case {
            name: "Linux413/shared/bulk",
            iterations: 400,
            blocks: BULK as u64,
            run: |n| shared::<Linux413>(|all| bulk(all, n)),
        },
        Case {
            name: "Zonal/owned/hot-pair+planted",
            iterations: 20_000,
            blocks: 1,
            run: |n| owned::<Zonal>(|cpu| hot_pair::<_, true>(cpu, n)),
        },
    ]};
}

pub(crate) static CASES: [Case; 38] = cases!(Zonal Linux416);

/// A ring in statics in which no event is enabled; it may be `ASKED` whether one is, as by a sink that says nothing of that.
struct Idle<const ASKED: bool>;

static WORDS: [AtomicU64; words_for(64)] = [const { AtomicU64::new(0) }; words_for(64)];
static RING: Ring<'static, AtomicU64> = Ring::new(&WORDS);

impl<const ASKED: bool> Sink for Idle<ASKED> {
    type Word = AtomicU64;
    #[inline(always)]
    fn ring() -> Option<&'static Ring<'static, AtomicU64>> {
        Some(&RING)
    }
    fn now() -> u64 {
        0
    }
    fn cpu() -> CpuId {
        CpuId(0)
    }
    #[inline(always)]
    fn is_on(point: Point) -> bool {
        match point {
            _ if ASKED => RING.is_on(point),
            Point::Alloc => test_static!(WORDS, ENABLED_BYTE, 1 << Point::Alloc.index()),
            Point::Free => test_static!(WORDS, ENABLED_BYTE, 1 << Point::Free.index()),
            _ => RING.is_on(point),
        }
    }
}

/// A way into an allocator.
trait Way {
    fn alloc(&mut self, request: &Request) -> Result<Pfn, Box<dyn Error>>;
    fn free(&mut self, pfn: Pfn, order: Order) -> Outcome;
    fn alloc_bulk(&mut self, request: &Request, out: &mut [Pfn]) -> Outcome;
    fn free_bulk(&mut self, frames: &[Pfn]) -> Outcome;
}

macro_rules! way {
    ($way:ty, $inherent:ident) => {
        impl<S: Policy> Way for $way {
            #[inline(always)]
            fn alloc(&mut self, request: &Request) -> Result<Pfn, Box<dyn Error>> {
                self.alloc_raw(request).map_err(Into::into)
            }
            #[inline(always)]
            fn free(&mut self, pfn: Pfn, order: Order) -> Outcome {
                self.free_raw(pfn, order).map_err(Into::into)
            }
            #[inline(always)]
            fn alloc_bulk(&mut self, request: &Request, out: &mut [Pfn]) -> Outcome {
                $inherent::alloc_bulk(self, request, out).map_err(Into::into)
            }
            #[inline(always)]
            fn free_bulk(&mut self, frames: &[Pfn]) -> Outcome {
                match $inherent::free_bulk(self, frames).first_refused {
                    None => Ok(()),
                    Some((_, error)) => Err(error.into()),
                }
            }
        }
    };
}
way!(CpuHandle<'_, '_, OneCpu, S>, CpuHandle);
way!(&Allocator<'_, OneCpu, S>, Allocator);

fn owned<S: Policy>(work: impl FnOnce(&mut CpuHandle<'_, '_, OneCpu, S>) -> Outcome) -> Outcome {
    with_allocator::<S>(|allocator| work(&mut allocator.handle(CpuId(0))?))
}

fn shared<S: Policy>(work: impl FnOnce(&mut &Allocator<'_, OneCpu, S>) -> Outcome) -> Outcome {
    with_allocator::<S>(|mut allocator| work(&mut allocator))
}

fn movable(order: Order) -> Request {
    Request::new(order).migrate(MigrateType::Movable).zone_limit(ZoneType::Movable)
}

#[inline(never)]
fn zeroed_pair<W: Way>(way: &mut W, iterations: u64) -> Outcome {
    let request = movable(Order::ZERO).zero();
    for _ in 0..iterations {
        let pfn = black_box(way.alloc(&request)?);
        way.free(pfn, Order::ZERO)?;
    }
    Ok(())
}

#[inline(never)]
fn hot_pair<W: Way, const PLANTED: bool>(way: &mut W, iterations: u64) -> Outcome {
    let request = movable(Order::ZERO);
    for _ in 0..iterations {
        let pfn = black_box(way.alloc(&request)?);
        if PLANTED {
            (0..8).for_each(|n| _ = black_box(n));
        }
        way.free(pfn, Order::ZERO)?;
    }
    Ok(())
}

#[inline(never)]
fn blocks<W: Way>(way: &mut W, order: Order, iterations: u64) -> Outcome {
    let request = movable(order);
    for _ in 0..iterations {
        let pfn = black_box(way.alloc(&request)?);
        way.free(pfn, order)?;
    }
    Ok(())
}

#[inline(never)]
fn bulk<W: Way>(way: &mut W, iterations: u64) -> Outcome {
    let request = movable(Order::ZERO);
    let mut frames = [Pfn::default(); BULK];
    for _ in 0..iterations {
        way.alloc_bulk(&request, &mut frames)?;
        way.free_bulk(black_box(&frames))?;
    }
    Ok(())
}

#[inline(never)]
fn burst<W: Way>(way: &mut W, iterations: u64) -> Outcome {
    let request = movable(Order::ZERO);
    let mut frames = vec![Pfn::default(); BURST];
    for _ in 0..iterations {
        for frame in &mut frames {
            *frame = way.alloc(&request)?;
        }
        for &frame in black_box(&frames) {
            way.free(frame, Order::ZERO)?;
        }
    }
    Ok(())
}

/// As [`burst`], freed in another order: 1021 and 4096 have no common factor.
#[inline(never)]
fn random<W: Way>(way: &mut W, iterations: u64) -> Outcome {
    let request = movable(Order::ZERO);
    let mut frames = vec![Pfn::default(); BURST];
    for _ in 0..iterations {
        for frame in &mut frames {
            *frame = way.alloc(&request)?;
        }
        for at in 0..BURST {
            way.free(black_box(&frames)[at * 1021 % BURST], Order::ZERO)?;
        }
    }
    Ok(())
}

/// Blocks of which the oldest is freed for each that is allocated.
#[inline(never)]
fn queue<W: Way>(way: &mut W, order: Order, iterations: u64) -> Outcome {
    let mut alive = VecDeque::new();
    for _ in 0..iterations {
        alive.push_back(way.alloc(&movable(order))?);
        if alive.len() > QUEUED
            && let Some(pfn) = alive.pop_front()
        {
            way.free(black_box(pfn), order)?;
        }
    }
    alive.into_iter().try_for_each(|pfn| way.free(pfn, order))
}

const fn order(number: u8) -> Order {
    match Order::new(number) {
        Some(order) => order,
        None => panic!("an order"),
    }
}

/// One block of many is freed, and another one comes.
#[inline(never)]
fn replace<W: Way, const N: usize>(way: &mut W, orders: [Order; N], iterations: u64) -> Outcome {
    let take = |way: &mut W, number: usize| {
        let order = orders[number % N];
        way.alloc(&movable(order)).map(|pfn| (pfn, order))
    };
    let mut alive = (0..REPLACED).map(|at| take(way, at)).collect::<Result<Vec<_>, _>>()?;
    let mut random = 1;
    for _ in 0..iterations {
        random = next(random);
        let (pfn, order) = &mut alive[(random >> 33) as usize % REPLACED];
        way.free(black_box(*pfn), *order)?;
        (*pfn, *order) = take(way, (random >> 43) as usize)?;
    }
    alive.into_iter().try_for_each(|(pfn, order)| way.free(pfn, order))
}

/// Numbers that look random and are the same in each run: Knuth's MMIX generator.
const fn next(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// One block of many goes, and one of another order comes: four of five are frames.
#[inline(never)]
fn mixed<W: Way>(way: &mut W, iterations: u64) -> Outcome {
    let mut alive = vec![None; MIXED_BLOCKS];
    let mut random = 1_u64;
    for _ in 0..iterations {
        random = next(random);
        let place = &mut alive[(random >> 33) as usize % MIXED_BLOCKS];
        if let Some((pfn, order)) = place.take() {
            way.free(black_box(pfn), order)?;
        }
        let order = Order::new(MIXED_ORDERS[(random >> 50) as usize % MIXED_ORDERS.len()]);
        let order = order.unwrap_or(Order::ZERO);
        *place = Some((way.alloc(&movable(order))?, order));
    }
    alive.into_iter().flatten().try_for_each(|(pfn, order)| way.free(pfn, order))
}
