use zonal_testkit::preset::TinyZonal;
use zonal_testkit::command::{Ask, Command, Nodes};
use zonal_testkit::probe::Probe;
use zonal_testkit::runner::run_commands;
use zonal_testkit::shape::Shape;

#[test]
fn regression() {
    let commands = [
        Command::AllocBulk { ask: Ask { order: 6, migrate: 0, limit: 2, flags: 1, nodes: Nodes::Local }, count: 25 },
        Command::Fill { ask: Ask { order: 9, migrate: 0, limit: 2, flags: 0, nodes: Nodes::Bind(3) }, spare: 0 },
        Command::FreeBulk { nth: 1, count: 2, twice: true },
        Command::DrainAll,
    ];
    run_commands::<Probe, TinyZonal>(Shape::Holes, &commands).unwrap();
}
