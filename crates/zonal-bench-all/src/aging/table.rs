//! The cells as a table: means over the seeds.

use zonal_bench::aging::Spec;
use zonal_cli::size::human;
use zonal_cli::table::Table;
use zonal_cli::terminal;

use super::Line;

/// What the others are compared with.
const BASE: &str = "Linux416";

/// A row of the table: runs that differ in the seed only.
fn is_cell(one: &Spec, other: &Spec) -> bool {
    Spec { seed: 0, ..*one } == Spec { seed: 0, ..*other }
}

fn mean<'a>(lines: impl Iterator<Item = &'a Line>, value: impl Fn(&Line) -> f64) -> f64 {
    let (sum, count) =
        lines.fold((0.0, 0.0), |(sum, count), line| (sum + value(line), count + 1.0));
    sum / count
}

/// The table.
pub(super) fn text(lines: &[Line]) -> String {
    let mut table = Table::new(2);
    table.text("cell");
    table.text("subject");
    for head in ["order 9", "of Linux416", "late", "order 3", "reported order 9"] {
        table.number(head, "");
    }
    table.number("refused", "blocks");
    table.number("refused order 9", "blocks");
    table.number("whole", "pageblocks");
    table.number("cached", "frames");
    table.number("time", "s");
    table.text("mark");
    let mut seen: Vec<(&str, &Spec)> = Vec::new();
    for line in lines {
        let known =
            |(subject, spec): &(&str, &Spec)| *subject == line.subject && is_cell(spec, &line.spec);
        if seen.iter().any(known) {
            continue;
        }
        seen.push((&line.subject, &line.spec));
        let of = |subject: &str| {
            let subject = subject.to_owned();
            let fits =
                move |other: &&Line| other.subject == subject && is_cell(&other.spec, &line.spec);
            lines.iter().filter(fits)
        };
        let own = || of(&line.subject);
        let reported = |line: &Line| line.row.reported9.unwrap_or(line.row.index9);
        let base = of(BASE).next().map(|_| mean(of(BASE), |line| line.row.index9));
        let says = own().all(|line| line.row.reported9.is_some());
        let spec = &line.spec;
        let three = |value: f64| format!("{value:.3}");
        let sum = |value: &dyn Fn(&Line) -> u64| own().map(value).sum::<u64>().to_string();
        let lost = own().any(|line| line.row.lost_cpu == Some(true));
        let cached = mean(own(), |line| line.row.cached.unwrap_or(0) as f64);
        table.row([
            format!(
                "{} {} % {} CPUs {}",
                spec.mix,
                spec.fill,
                spec.cpus,
                human(spec.memory as u64)
            ),
            line.subject.clone(),
            three(mean(own(), |line| line.row.index9)),
            base.map_or(String::new(), |base| {
                format!("{:.2}", mean(own(), |line| line.row.index9) / base)
            }),
            three(mean(own(), |line| line.row.index9_late)),
            three(mean(own(), |line| line.row.index3)),
            if says { three(mean(own(), reported)) } else { String::new() },
            sum(&|line| line.row.refused.iter().sum()),
            sum(&|line| line.row.refused9),
            format!("{:.0}", mean(own(), |line| line.row.whole_blocks as f64)),
            if line.row.cached.is_some() { format!("{cached:.0}") } else { String::new() },
            format!("{:.1}", mean(own(), |line| line.row.seconds)),
            if lost { "disturbed".to_owned() } else { String::new() },
        ]);
    }
    let remark = "Indexes are means over rounds and seeds; late: over the second half of the rounds. \
                  Reported: as presets count their free blocks, without what is in caches. Refused: \
                  requests of all seeds. Disturbed: a run lost its CPU, so the time is not its own; the \
                  rest is.";
    format!("{}\n\n{}\n", table.fit(terminal::width()), terminal::fold(remark))
}
