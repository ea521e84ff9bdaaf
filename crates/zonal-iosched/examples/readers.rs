//! Sixteen sequential readers on a simulated disk, with both target latencies.

use zonal_iosched::error::IoschedError;
use zonal_iosched::scheduler::{Kind, Subject};
use zonal_iosched::simulated::simulate;
use zonal_iosched::workload::Workload;

/// MiB/s of all `readers` together.
fn rate(target_ms: u64, readers: u32) -> Result<f64, IoschedError> {
    let disk = zonal_disk::builtin("desktop_2014").expect("it is built in");
    let workload = Workload::readers(readers, 512 << 20, disk.capacity())?;
    let subject = Subject { target_ms, ..Subject::new(Kind::Cfq) };
    Ok(simulate(&subject, &disk, workload)?.mib_s())
}

fn main() -> Result<(), IoschedError> {
    for target_ms in [300, 600] {
        println!("{target_ms} ms: {:.1} MiB/s", rate(target_ms, 16)?);
    }
    Ok(())
}

#[test]
fn longer_slices_seek_less() {
    let rates = [300, 600].map(|target| rate(target, 16).expect("it runs"));
    assert!(rates[1] > rates[0], "{rates:?}");
}
