//! Mounts a directory with 4 MiB of memory, streams 64 MiB through, and prints the statistics file.
//!
//! ```text
//! cargo run --release -p zonal-mount --example bound
//! ```

use std::error::Error;
use std::fs;
use zonal_cache::S3Fifo;
use zonal_mount::{Mounted, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let (below, root) = (place.path().join("below"), place.path().join("root"));
    fs::create_dir(&below)?;
    fs::create_dir(&root)?;
    let options = Options { memory: 4 << 20, ..Options::default() };
    let mounted = Mounted::<S3Fifo>::start(&below, &root, &options)?;
    let bytes: Vec<u8> = (0..16 << 20_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(root.join("file"), &bytes)?;
    assert!(fs::read(root.join("file"))? == bytes);
    print!("{}", fs::read_to_string(root.join(".zonal"))?);
    mounted.unmount()?;
    mounted.wait()?;
    assert!(fs::read(below.join("file"))? == bytes);
    Ok(())
}
