//! What a run says in sentences: the fastest of zonal's rows against the fastest peer, and scaling.
//! Rows that are not [sound](Row::is_sound) are compared with nothing.
//!
//! ```
//! assert!(zonal_bench::headline::sentences(&[]).is_empty());
//! ```

use crate::rendezvous::Distance;
use crate::report::{name, number};
use crate::stats::Row;
use crate::subject::Group;

/// A sentence for each thread count, and one on scaling for each that has it.
#[must_use]
pub fn sentences(rows: &[Row]) -> Vec<String> {
    let mut keys: Vec<_> = rows.iter().map(|row| (row.threads, row.distance)).collect();
    keys.sort_unstable();
    keys.dedup();
    let alike = |key: (usize, Option<Distance>)| -> Vec<&Row> {
        rows.iter().filter(|row| (row.threads, row.distance) == key).collect()
    };
    keys.into_iter().flat_map(|key| of(key, &alike(key))).collect()
}

fn of((threads, distance): (usize, Option<Distance>), rows: &[&Row]) -> Vec<String> {
    let plural = if threads == 1 { "" } else { "s" };
    let apart = distance.map_or(String::new(), |it| format!(" ({} CPUs)", it.name()));
    let head = format!("{threads} thread{plural}{apart}: ");
    let fastest = |wanted: Group| {
        let of = rows.iter().filter(|row| row.group == wanted && row.is_sound());
        of.min_by(|a, b| a.ns_per_frame.total_cmp(&b.ns_per_frame)).copied()
    };
    let (ours, theirs) = (fastest(Group::Zonal), fastest(Group::Peer));
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        let marked = rows.iter().filter(|row| !row.is_sound()).count();
        let why = format!("nothing to compare, {marked} of {} rows are marked.", rows.len());
        return vec![head + &why];
    };
    let (name_of_ours, ns) = (name(ours), number(ours.ns_per_frame));
    let theirs_ns = number(theirs.ns_per_frame);
    let ratio = theirs.ns_per_frame / ours.ns_per_frame;
    let mut said = vec![format!(
        "{head}{name_of_ours} takes {ns} ns a frame, the fastest peer, {}, {theirs_ns} ns: {ratio:.1} \
         times as long.",
        theirs.subject
    )];
    if let (Some(ours), Some(theirs)) = (ours.scaling, theirs.scaling) {
        let all = threads as f64;
        said.push(format!(
            "{head}{name_of_ours} does {:.2} times the work of one thread, that peer {:.2} times.",
            ours * all,
            theirs * all
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(group: Group, threads: usize, ns: f64) -> Row {
        let subject = if group == Group::Zonal { "Zonal" } else { "peer" };
        Row { group, ..Row::example(subject, threads, ns) }
    }

    #[test]
    fn the_fastest_are_compared() {
        let rows =
            [row(Group::Zonal, 1, 6.0), row(Group::Zonal, 1, 12.0), row(Group::Peer, 1, 12.0)];
        let said = sentences(&rows);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("6.00 ns") && said[0].contains("2.0 times as long"), "{said:?}");
    }

    #[test]
    fn marked_rows_make_no_headline() {
        let disturbed = Row { disturbed: true, ..row(Group::Zonal, 2, 6.0) };
        let scattered =
            Row { scattered: true, min: 194.0, max: 7654.0, ..row(Group::Peer, 2, 900.0) };
        let sound = row(Group::Peer, 2, 30.0);
        let said = sentences(&[disturbed.clone(), sound.clone()]);
        assert!(said[0].contains("nothing to compare, 1 of 2 rows"), "{said:?}");
        let said = sentences(&[row(Group::Zonal, 2, 6.0), scattered, sound]);
        assert!(said[0].contains("5.0 times") && !said[0].contains("900"), "{said:?}");
        let few = Row { samples: 2, ..row(Group::Zonal, 2, 6.0) };
        assert!(sentences(&[few, row(Group::Peer, 2, 30.0)])[0].contains("nothing to compare"));
    }

    #[test]
    fn marked_rows_scale_nothing() {
        let mut rows =
            [row(Group::Zonal, 1, 6.0), row(Group::Zonal, 2, 6.0), row(Group::Peer, 2, 9.0)];
        crate::stats::scale(&mut rows);
        assert_eq!(rows.each_ref().map(|row| row.scaling), [None, Some(1.0), None]);
        rows[0].disturbed = true;
        rows[1].scaling = None;
        crate::stats::scale(&mut rows);
        assert_eq!(rows[1].scaling, None);
    }
}
