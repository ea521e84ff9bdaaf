//! `fsx`, the program of crates.io, on a mount: random reads, writes, mappings, truncations and holes in a file whose every
//! byte it knows, with the bound at an eighth of the file. `cargo xtask fsx`; with `--operations` for longer.
//!
//! It mounts for real, as root: where that cannot be, it fails and says so. The program that mounts is the one that the
//! tests of `zonal-mount` start, unoptimised and with all checks of the library: after the step `test` nothing is compiled.

use crate::steps::{all_features, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use xshell::{Shell, cmd};

/// What `fsx` does with the file, and how long that becomes.
const CONFIG: &str = "crates/zonal-mount/fsx.toml";
/// Operations of a step.
const FEW: u64 = 20_000;
/// Operations of one program at most: it unmaps nothing that it has mapped to read, and a process has no more than 65,530
/// mappings.
const PIECE: u64 = 50_000;
/// Longer than a program takes on a busy machine: after that the mount stands still.
const LIMIT: Duration = Duration::from_secs(900);
/// The same for what unmounting writes.
const END: Duration = Duration::from_secs(60);
/// How often the bound is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes in memory that may come beside the bound: tables, stacks, requests on their way. Less than a file's, of which no
/// more than an eighth is to be there.
const BESIDE: u64 = 4 << 20;
const DEVICE: &str = "/dev/fuse";
const OTHERWISE: &str =
    "it mounts by FUSE, as root: `cargo xtask preflight --skip fsx` is all but this";

/// How much.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct Options {
    /// With `fsx`: operations, by programs of 50,000 at most [default: 20000].
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// With `fsx`: the seed of its first program; each that follows has the next one [default: 1].
    #[arg(long, global = true, value_name = "N")]
    seed: Option<u64>,
}

impl Options {
    pub(crate) const fn are_given(&self) -> bool {
        self.operations.is_some() || self.seed.is_some()
    }
}

pub(crate) fn run(shell: &Shell, options: &Options) -> Result<()> {
    let (operations, seed) = (options.operations.unwrap_or(FEW), options.seed.unwrap_or(1));
    let device = File::options().read(true).write(true).open(DEVICE);
    drop(device.with_context(|| format!("cannot open {DEVICE}; {OTHERWISE}"))?);
    let fsx = tools::fsx(shell)?;
    let mount = build(shell)?;
    let config = shell.current_dir().join(CONFIG);
    let bound = length(&shell.read_file(&config)?)? / 8;
    let kept = target_dir(shell).join("fsx");
    shell.create_dir(&kept)?;
    let folder = shell.create_temp_dir()?;
    let (below, root) = (folder.path().join("below"), folder.path().join("root"));
    [&below, &root].into_iter().try_for_each(|it| shell.create_dir(it).map(drop))?;
    let mut server = Server::start(&mount, &below, &root, bound)?;
    let before = server.memory("VmRSS:")?;
    for (seed, operations) in (seed..).zip(pieces(operations)) {
        eprintln!("fsx: {operations} operations, seed {seed}");
        let (operations, seed) = (operations.to_string(), seed.to_string());
        let mut command = Command::new(&fsx);
        command.args(["-q", "-N", &operations, "-S", &seed, "-f"]).arg(&config);
        command.arg("-P").arg(&kept).arg(root.join("file"));
        let seen = server.run(&mut command, bound).with_context(|| {
            format!("of seed {seed}; what fsx keeps of that is in {}", kept.display())
        })?;
        ensure!(seen > 0, "the bound was not looked at");
    }
    let text = fs::read_to_string(root.join(".zonal"))?;
    let said = Statistics::read(&text)?;
    said.ensure_within(bound)?;
    for name in ["read_errors", "write_errors", "flush_errors", "pages_lost"] {
        ensure!(said.of(name)? == 0, "the mount counts {name}:\n{text}");
    }
    ensure!(said.of("pages_evicted")? > 0, "no page had to go: that is no test of a bound");
    let most = server.memory("VmHWM:")?;
    let came = most.saturating_sub(before);
    ensure!(
        came <= bound + BESIDE,
        "{most} bytes in memory, {came} more than before; the bound is {bound}"
    );
    server.unmount(shell)?;
    eprintln!("{operations} operations without a difference; {came} bytes came to memory\n{text}");
    Ok(())
}

/// Builds what mounts, as the step `test` does: with the same features, of the whole workspace, for tests. Where it is.
fn build(shell: &Shell) -> Result<PathBuf> {
    let all = ["--workspace", "--locked", "--features", &all_features(shell)?];
    cmd!(shell, "cargo test {all...} --test mounts --no-run").run()?;
    Ok(target_dir(shell).join("debug/zonal-mount"))
}

/// The longest that the file becomes, by the configuration.
fn length(config: &str) -> Result<u64> {
    let config: toml::Table = toml::from_str(config).context(CONFIG)?;
    let length = config.get("flen").and_then(toml::Value::as_integer);
    length.and_then(|it| it.try_into().ok()).with_context(|| format!("{CONFIG} has no `flen`"))
}

/// How many operations each program does.
fn pieces(operations: u64) -> impl Iterator<Item = u64> {
    (0..operations.div_ceil(PIECE)).map(move |done| (operations - done * PIECE).min(PIECE))
}

/// What the statistics file says.
struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    fn read(text: &str) -> Result<Self> {
        let line = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let lines: Option<_> = text.lines().map(line).collect();
        Ok(Self(lines.with_context(|| format!("these are no statistics: {text:?}"))?))
    }

    fn of(&self, name: &str) -> Result<u64> {
        self.0.get(name).copied().with_context(|| format!("the statistics lack {name}"))
    }

    /// That no more is used than may be.
    fn ensure_within(&self, bound: u64) -> Result<()> {
        let (used, is) = (self.of("used_bytes")?, self.of("bound_bytes")?);
        ensure!(used <= is && is == bound, "{used} bytes are used of {is}; the bound is {bound}");
        Ok(())
    }
}

/// The program that mounts, ended when this is dropped.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
    root: PathBuf,
}

impl Server {
    fn start(program: &Path, below: &Path, root: &Path, bound: u64) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("mount").args([below, root]);
        command.args(["--memory", &bound.to_string(), "--threads", "2"]).stdout(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let out = BufReader::new(child.stdout.take().context("it has an output")?);
        let mut server = Self { child, out, root: root.to_owned() };
        let mut line = String::new();
        server.out.read_line(&mut line)?;
        ensure!(line.contains("is mounted on"), "nothing is mounted: see above; {OTHERWISE}");
        Ok(server)
    }

    /// Bytes of its memory, as the system has them under that name.
    fn memory(&self, name: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(kib.with_context(|| format!("the system does not say {name}"))?.parse::<u64>()? << 10)
    }

    /// Runs a program on the mount to its end, and looks at the bound meanwhile. How often it did.
    fn run(&mut self, command: &mut Command, bound: u64) -> Result<u32> {
        let over = AtomicBool::new(false);
        let statistics = self.root.join(".zonal");
        let mut program = command.spawn()?;
        // In a thread of its own, which may have to wait with the mount.
        let (status, seen) = thread::scope(|scope| {
            let looks = scope.spawn(|| look(&statistics, bound, &over));
            let status = wait(&mut program, LIMIT);
            // Relaxed: it orders nothing.
            over.store(true, Ordering::Relaxed);
            if !matches!(status, Ok(Some(_))) {
                // Without a server every call on the mount fails, and nothing waits.
                let _ended = self.child.kill();
                let _ended = program.kill();
                let _reaped = program.wait();
            }
            (status, looks.join())
        });
        match status? {
            Some(status) if status.success() => {}
            Some(status) => bail!("fsx ended by {status}: see above"),
            None => bail!("fsx did not end within {LIMIT:?}"),
        }
        seen.map_err(|_| anyhow::anyhow!("looking at the bound panicked"))?
    }

    /// Unmounts it, and waits until all is written back.
    fn unmount(mut self, shell: &Shell) -> Result<()> {
        let (root, end) = (self.root.clone(), Instant::now() + END);
        // The last handle may be on its way to be closed.
        while cmd!(shell, "umount {root}").quiet().ignore_stderr().run().is_err() {
            ensure!(Instant::now() < end, "`umount {}` is refused", root.display());
            thread::sleep(LOOK);
        }
        let status = wait(&mut self.child, END)?.context("it did not end after unmounting")?;
        let mut said = String::new();
        self.out.read_to_string(&mut said)?;
        ensure!(status.success() && said.contains("Unmounted"), "it ended by {status}: {said}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
        let _detached = Command::new("umount").arg("-l").arg(&self.root).status();
    }
}

/// Looks at the bound until it is over; how often.
fn look(statistics: &Path, bound: u64, over: &AtomicBool) -> Result<u32> {
    let mut count = 0;
    // Relaxed: it orders nothing.
    while !over.load(Ordering::Relaxed) {
        Statistics::read(&fs::read_to_string(statistics)?)?.ensure_within(bound)?;
        count += 1;
        thread::sleep(LOOK);
    }
    Ok(count)
}

/// Waits for a process to end; `None` if it does not within that time.
fn wait(process: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        let status = process.try_wait()?;
        if status.is_some() || Instant::now() > end {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_operations_are_twenty_programs() {
        assert_eq!(pieces(1_000_000).collect::<Vec<_>>(), [PIECE; 20]);
        assert_eq!(pieces(PIECE + 1).collect::<Vec<_>>(), [PIECE, 1]);
        assert_eq!(pieces(7).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn the_bound_is_an_eighth_of_the_file() {
        let config = include_str!("../../crates/zonal-mount/fsx.toml");
        assert_eq!(length(config).unwrap() / 8, 1 << 20);
        assert!(length("nothing = 1").is_err());
    }

    #[test]
    fn what_is_beyond_the_bound_is_seen() {
        let read = |used: u64| Statistics::read(&format!("bound_bytes 4096\nused_bytes {used}\n"));
        assert!(read(4096).unwrap().ensure_within(4096).is_ok());
        assert!(read(4097).unwrap().ensure_within(4096).is_err());
        assert!(read(0).unwrap().ensure_within(8192).is_err(), "another bound");
        assert!(Statistics::read("no number\n").is_err());
    }

    #[test]
    fn a_mount_that_stands_still_is_given_up() {
        let mut sleeps = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(wait(&mut sleeps, Duration::from_millis(50)).unwrap().is_none());
        sleeps.kill().unwrap();
        assert!(wait(&mut sleeps, END).unwrap().is_some_and(|status| !status.success()));
    }
}
