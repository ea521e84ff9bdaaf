//! The bootable kernel: built, and booted in an emulator. `cargo xtask kernel run`, `kernel test`.

use crate::kernel_size;
use crate::no_std::{BARE, is_installed};
use crate::steps::target_dir;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use xshell::{Shell, cmd};

/// The package in the folder `kernel`.
const PACKAGE: &str = "zonal-on-pc";
/// An emulator without acceleration: on a machine whose processor can do more, it still behaves the same.
const EMULATOR: &str = "qemu-system-x86_64";
/// What the emulator exits with when the kernel says that all went well: twice the kernel's code, plus 1.
pub(crate) const WELL: i32 = 0x10 << 1 | 1;
/// What it exits with when a count was wrong.
pub(crate) const WRONG: i32 = 0x11 << 1 | 1;
/// Seconds for one boot of `test`.
const SECONDS: u32 = 60;
/// And for one whose instructions are counted, which is slower.
const EXACT_SECONDS: u32 = 240;

/// What to do with it.
#[derive(Subcommand)]
pub(crate) enum Kernel {
    /// Boots it, with its console here
    Run(Boot),
    /// Prints what a frame costs there, in instructions: exact, on one processor
    Cost,
    /// Prints how long the allocator masks interrupts at most, in instructions, part by part, and lists the
    /// places where that is more than 4000
    Masked,
    /// Runs all presets, `buddy_system_allocator` and `bitmap-allocator` in it, on 1 to 32 processors: what a frame and a
    /// page fault cost, in instructions, in locks, slots and fences, and what is looked at when memory is short
    Peers,
    /// Prints how much code an allocator adds to a kernel, and where that code can panic
    Size,
    /// Boots it with 1, 4 and 8 processors and with two nodes; each boot counts every frame
    Test,
}

/// One boot.
#[derive(Args, Clone)]
pub(crate) struct Boot {
    /// Processors
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// Nodes: the processors and the memory are divided evenly
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    /// Memory, in MiB: 128 to 5120
    #[arg(long, default_value_t = 512)]
    memory: u32,
    /// GiB for which there is room beside the memory; the first of them is plugged in
    #[arg(long, default_value_t = 0)]
    room: u32,
    /// Workloads to run, by name, with commas; all if none is named
    #[arg(long, default_value = "")]
    workloads: String,
    /// The boot is ended after this many seconds
    #[arg(long, default_value_t = 600)]
    seconds: u32,
    /// One thread, whose clock counts instructions: the same run each time
    #[arg(long)]
    exact: bool,
    /// A shell on the console instead of workloads: `help` says what it knows
    #[arg(long, conflicts_with = "workloads")]
    shell: bool,
    /// With the preset `Linux416` instead of `Zonal`
    #[arg(long)]
    linux416: bool,
}

impl Kernel {
    pub(crate) fn run(&self, shell: &Shell) -> Result<()> {
        match self {
            Self::Run(one) => judge(boot(&build(shell, one.features())?, one)?, one),
            Self::Cost => exact(&build(shell, "")?, Boot::of(1, 1, "cost")),
            Self::Masked => exact(&build(shell, "masked")?, Boot::of(1, 1, "masked")),
            Self::Peers => {
                let kernel = build(shell, "peers")?;
                let machine = |cpus| Boot { memory: 2560, ..Boot::of(cpus, 1, "peers") };
                for cpus in [1, 2, 4, 8, 32] {
                    println!("\n--- {cpus} processors, whose clock counts instructions");
                    exact(&kernel, machine(cpus))?;
                }
                for cpus in [1, 2] {
                    println!(
                        "\n--- {cpus} processors, each a thread: spins are real, ticks are none"
                    );
                    judge(boot(&kernel, &machine(cpus))?, &machine(cpus))?;
                }
                Ok(())
            }
            Self::Size => {
                require_target(shell)?;
                kernel_size::run(shell)
            }
            Self::Test => test(shell),
        }
    }
}

/// The lints of the kernel, and its tests. Without the target nothing can be built for it; as in `no-std`,
/// that is said, and is no failure.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    if !is_installed(shell, BARE)? {
        eprintln!("target {BARE} is not installed: no kernel was built, and none booted");
        return Ok(());
    }
    let build = ["--release", "--locked", "-p", PACKAGE, "--target", BARE];
    cmd!(shell, "cargo clippy {build...} -- -D warnings").run()?;
    Kernel::Test.run(shell)
}

fn require_target(shell: &Shell) -> Result<()> {
    ensure!(
        is_installed(shell, BARE)?,
        "the target {BARE} is not installed: `rustup target add {BARE}`"
    );
    Ok(())
}

pub(crate) fn require_emulator(shell: &Shell) -> Result<()> {
    ensure!(
        tools::have(shell, EMULATOR),
        "`{EMULATOR}` is not installed: `apt-get install qemu-system-x86`, or your system's \
         package of it"
    );
    Ok(())
}

impl Boot {
    pub(crate) fn of(cpus: u32, nodes: u32, workloads: &str) -> Self {
        Self {
            cpus,
            nodes,
            memory: 512,
            room: 0,
            workloads: workloads.to_owned(),
            seconds: SECONDS,
            exact: false,
            shell: false,
            linux416: false,
        }
    }

    /// What the kernel is built with.
    const fn features(&self) -> &'static str {
        if self.linux416 { "trace,linux416" } else { "trace" }
    }
}

fn test(shell: &Shell) -> Result<()> {
    let other = build(shell, "trace,linux416")?;
    let machine = Boot { linux416: true, ..Boot::of(4, 1, "") };
    eprintln!("\n--- Linux416, 4 processors");
    judge(boot(&other, &machine)?, &machine).context("Linux416")?;
    let kernel = &build(shell, "trace")?;
    let one = Boot::of;
    let with_room =
        |nodes, workloads| Boot { memory: 1024, room: ROOM, ..one(4, nodes, workloads) };
    let machines = [(1, 1), (4, 1), (8, 1), (4, 2)].map(|(cpus, nodes)| one(cpus, nodes, ""));
    for machine in machines.into_iter().chain([with_room(1, ""), with_room(2, "")]) {
        let start = Instant::now();
        let Boot { cpus, nodes, room, .. } = machine;
        let name = format!("{cpus} processors, {nodes} nodes, room for {room} GiB");
        eprintln!("\n--- {name}");
        judge(boot(kernel, &machine)?, &machine).context(name)?;
        eprintln!("--- {:.1} s", start.elapsed().as_secs_f64());
    }
    console(kernel)?;
    first_kernel(shell)?;
    for (canary, what, sentence) in CANARIES {
        eprintln!("\n--- {what}, which the kernel must find");
        let output = emulator(kernel, &with_room(1, canary))?.output();
        let output = output.context("`timeout` cannot be run")?;
        let said = String::from_utf8_lossy(&output.stdout);
        eprint!("{said}{}", String::from_utf8_lossy(&output.stderr));
        let code = output.status.code();
        ensure!(found(code, &said, sentence), "{what}, and the kernel did not find it ({code:?})");
    }
    Ok(())
}

/// What must end wrong, why, and what the kernel must say of it.
const CANARIES: [(&str, &str, &str); 5] = [
    ("canary", "a frame is lost", "(WRONG: said free "),
    ("deep", "building the allocator takes too much stack", "WRONG: that is too much stack"),
    ("flat", "there are tables for all that may come", "WRONG: those are tables for more than is"),
    ("fork,plgu", "a workload is not there", "`plgu` is no workload"),
    ("cost", "instructions are to be counted on 4 processors", "`cost` counts on one processor"),
];

/// Whether a boot ended wrong for the reason that it was to. Any error has that exit code.
fn found(code: Option<i32>, said: &str, sentence: &str) -> bool {
    code == Some(WRONG) && said.contains(sentence)
}

/// GiB beside the memory of some of them.
const ROOM: u32 = 512;

/// Counted by an emulator whose clock is the number of instructions.
fn exact(kernel: &Path, machine: Boot) -> Result<()> {
    let machine = Boot { seconds: EXACT_SECONDS, exact: true, ..machine };
    judge(boot(kernel, &machine)?, &machine)
}

/// How a boot ended.
fn judge(code: Option<i32>, boot: &Boot) -> Result<()> {
    match code {
        Some(WELL) => Ok(()),
        Some(WRONG) => {
            bail!("a count was wrong, a workload is not there, or the kernel panicked: see above")
        }
        Some(124) => bail!("the kernel was not done after {} seconds", boot.seconds),
        code => bail!("the emulator ended with exit code {code:?}; {WELL} is a good end"),
    }
}

/// The kernel of the book's page, made by nothing but that page: in an empty folder, with a link to this
/// checkout. `cargo run` boots it.
fn first_kernel(shell: &Shell) -> Result<()> {
    eprintln!("\n--- the kernel of {PAGE}, in an empty folder");
    let folder = shell.create_temp_dir()?;
    let files = files_of(&shell.read_file(PAGE)?)?;
    for (name, text) in &files {
        shell.write_file(folder.path().join(name), text)?;
    }
    let checkout = shell.current_dir();
    std::os::unix::fs::symlink(&checkout, folder.path().join("zonal"))?;
    // The versions that are known to work; cargo leaves out what is not needed.
    shell.copy_file(checkout.join("Cargo.lock"), folder.path().join("Cargo.lock"))?;
    let target = target_dir(shell).join("first-kernel");
    let _in_folder = shell.push_dir(folder.path());
    let run = cmd!(shell, "cargo run --release --quiet").env("CARGO_TARGET_DIR", target);
    let output = run.ignore_status().output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{said}{}", String::from_utf8_lossy(&output.stderr));
    let well = output.status.code() == Some(1) && said.contains("2 MiB at 0x");
    ensure!(well, "the kernel of {PAGE} does not build, or does not allocate");
    Ok(())
}

/// The page from which a reader makes a kernel.
const PAGE: &str = "docs/book/src/kernel.md";

/// The files of a page: a line that begins with a name in backticks and ends with a colon, then the
/// block of code that is the file.
fn files_of(page: &str) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix('`').and_then(|rest| rest.split_once('`'));
        let is_file = |(name, rest): &(&str, &str)| rest.ends_with(':') && name.contains('.');
        let Some((name, _)) = name.filter(is_file) else { continue };
        let opened = lines.by_ref().take(2).any(|line| line.starts_with("```"));
        ensure!(opened, "no block of code follows `{name}`");
        let text = lines.by_ref().take_while(|line| *line != "```");
        files.push((name.to_owned(), text.flat_map(|line| [line, "\n"]).collect()));
    }
    ensure!(!files.is_empty(), "the page has no files");
    Ok(files)
}

/// Builds it with features and says where it is.
fn build(shell: &Shell, features: &str) -> Result<PathBuf> {
    require_target(shell)?;
    require_emulator(shell)?;
    let features = ["--features", features];
    cmd!(shell, "cargo build --release --locked -p {PACKAGE} --target {BARE} {features...}")
        .run()?;
    Ok(target_dir(shell).join(BARE).join("release").join(PACKAGE))
}

pub(crate) fn emulator(kernel: &Path, boot: &Boot) -> Result<Command> {
    let mut emulator = Command::new("timeout");
    emulator.arg("--foreground").arg(boot.seconds.to_string()).arg(EMULATOR);
    emulator.args(arguments(boot)?).arg("-kernel").arg(kernel);
    Ok(emulator)
}

/// Boots; returns the emulator's exit code.
fn boot(kernel: &Path, boot: &Boot) -> Result<Option<i32>> {
    let ended = emulator(kernel, boot)?.status().context("`timeout` cannot be run")?;
    Ok(ended.code())
}

/// Lines for the kernel's shell, and what it must say of them.
const LINES: &str = "trace on\nrun mixed\ntrace show\nbuddyinfo\nvmstat\nzoneinfo\ncount\n\
    run fork\nrun fork\nrun plug\nrun plug\nrun plgu\nrun cost\nexit\n";
const SAID: [&str; 8] = [
    " held = ",
    "mm_page_",
    "Node 0, zone",
    "nr_free_pages",
    "min ",
    "managed",
    "`plgu` is no workload",
    "`cost` counts on one processor",
];

/// Talks to the shell.
fn console(kernel: &Path) -> Result<()> {
    eprintln!("\n--- the shell");
    let machine = Boot { shell: true, ..Boot::of(2, 1, "") };
    let mut emulator = emulator(kernel, &machine)?;
    emulator.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = emulator.spawn().context("`timeout` cannot be run")?;
    // Closed when it is dropped.
    running.stdin.take().context("it has an input")?.write_all(LINES.as_bytes())?;
    let output = running.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    eprint!("{said}");
    judge(output.status.code(), &machine)?;
    let missing = SAID.into_iter().find(|&text| !said.contains(text));
    ensure!(missing.is_none(), "the shell did not say {missing:?}");
    Ok(())
}

/// What the workloads need at least, in MiB.
const LEAST_MEMORY: u32 = 128;
/// The most, in MiB, with which a module of 1 GiB still ends below 8 GiB: from 2816 MiB on 2 GiB are below 4 GiB, and
/// all else is above.
const MOST_MEMORY: u32 = 5120;

/// The machine.
fn arguments(boot: &Boot) -> Result<Vec<String>> {
    let Boot { cpus, nodes, memory, room, workloads, shell, .. } = boot;
    ensure!(
        (1..=64).contains(cpus) && (1..=16).contains(nodes) && nodes <= cpus,
        "1 to 64 processors, 1 to 16 nodes, and a processor for each node"
    );
    ensure!(
        (LEAST_MEMORY..=MOST_MEMORY).contains(memory),
        "--memory {memory}: {LEAST_MEMORY} to {MOST_MEMORY} MiB; the workloads need that much, and the kernel knows \
         the frames below 8 GiB, where an emulated PC has room for no more"
    );
    // Fast string instructions are slow when emulated.
    let mut arguments: Vec<String> = "-machine q35 -cpu max,-erms,-fsrm \
         -nodefaults -display none -serial stdio -no-reboot \
         -device isa-debug-exit,iobase=0xf4,iosize=0x04"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let clock = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"];
    let clock = if boot.exact { &clock[..] } else { &["-accel", "tcg,thread=multi"] };
    arguments.extend(clock.iter().map(|&argument| argument.to_owned()));
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    add("-smp", cpus.to_string());
    match room {
        0 => add("-m", format!("{memory}M")),
        room => {
            add("-m", format!("{memory}M,slots=1,maxmem={}M", memory + room * 1024));
            add("-object", "memory-backend-ram,size=1G,id=module".to_owned());
            add("-device", "pc-dimm,memdev=module".to_owned());
        }
    }
    add("-append", if *shell { "shell".to_owned() } else { workloads.clone() });
    let share = |all: u32, node: u32| all * node / nodes;
    for node in (0..*nodes).filter(|_| *nodes > 1) {
        let megabytes = share(*memory, node + 1) - share(*memory, node);
        let (first, last) = (share(*cpus, node), share(*cpus, node + 1) - 1);
        add("-object", format!("memory-backend-ram,size={megabytes}M,id=memory{node}"));
        add("-numa", format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}"));
        for other in 0..node {
            add("-numa", format!("dist,src={other},dst={node},val=21"));
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cpus: u32, nodes: u32) -> Boot {
        Boot::of(cpus, nodes, "mixed")
    }

    #[test]
    fn room_is_memory_that_may_come() {
        let line = arguments(&Boot { room: 2, ..with(1, 1) }).unwrap().join(" ");
        assert!(line.contains("-m 512M,slots=1,maxmem=2560M"), "{line}");
        assert!(line.contains("-device pc-dimm,memdev=module"), "{line}");
        assert!(!arguments(&with(1, 1)).unwrap().join(" ").contains("maxmem"));
    }

    #[test]
    fn processors_and_memory_are_divided() {
        let line = arguments(&with(5, 2)).unwrap().join(" ");
        assert!(line.contains("-smp 5 -m 512M -append mixed"), "{line}");
        assert!(line.contains("nodeid=0,cpus=0-1,memdev=memory0"), "{line}");
        assert!(line.contains("nodeid=1,cpus=2-4,memdev=memory1"), "{line}");
        assert!(line.contains("dist,src=0,dst=1,val=21"), "{line}");
        assert!(!arguments(&with(5, 1)).unwrap().join(" ").contains("numa"));
    }

    #[test]
    fn a_page_has_files() {
        let page =
            "Text.\n\n`a/b.rs` is short:\n\n```rust\nfn b() {}\n\n```\n`x`\n`c.d`:\n```\n1\n```\n";
        let files = files_of(page).unwrap();
        let wanted = [("a/b.rs", "fn b() {}\n\n"), ("c.d", "1\n")];
        assert_eq!(files, wanted.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert!(files_of("`a.b`:\n\nno code\n").is_err());
        assert!(files_of("nothing\n").is_err());
    }

    #[test]
    fn machines_that_cannot_be_are_refused() {
        for (cpus, nodes) in [(0, 1), (65, 1), (1, 0), (2, 3)] {
            assert!(arguments(&with(cpus, nodes)).is_err(), "{cpus} {nodes}");
        }
        for (memory, can_be) in [(0, false), (127, false), (128, true), (5120, true), (5121, false)]
        {
            let machine = Boot { memory, ..with(1, 1) };
            assert_eq!(arguments(&machine).is_ok(), can_be, "{memory}");
        }
    }

    #[test]
    fn a_canary_is_found_by_what_is_said_of_it() {
        let sentence = CANARIES[1].2;
        assert!(found(Some(WRONG), "zonal\nWRONG: that is too much stack\n", sentence));
        assert!(!found(Some(WRONG), "no memory for a stack\n", sentence), "another error");
        assert!(!found(Some(WELL), sentence, sentence));
    }
}
