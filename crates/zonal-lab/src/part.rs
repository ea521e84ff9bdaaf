//! The other programs of the `zonal` command: each has the commands that take long to compile, and
//! lies beside this one. In a checkout, one that is not built yet, or not any more, is built when
//! it is first asked for.

use std::env::consts::EXE_SUFFIX;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use zonal_cli::error::Failure;

/// A program that has some of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The program.
    program: &'static str,
    /// The package that it is in.
    package: &'static str,
    /// The commands that it has.
    commands: &'static [&'static str],
    /// Seconds of CPU time that it takes to compile in the release profile after this program, at most.
    cpu_seconds: u64,
}

const PARTS: [Part; 9] = [
    Part {
        program: "zonal-bench",
        package: "zonal-bench-all",
        commands: &["bench", "info"],
        cpu_seconds: 500,
    },
    Part {
        program: "zonal-simulate",
        package: "zonal-simulate",
        commands: &["sim"],
        cpu_seconds: 90,
    },
    Part {
        program: "zonal-replay",
        package: "zonal-replay",
        commands: &["record", "replay"],
        cpu_seconds: 170,
    },
    Part {
        program: "zonal-reproduce",
        package: "zonal-reproduce",
        commands: &["reproduce"],
        cpu_seconds: 200,
    },
    Part {
        program: "zonal-iosched",
        package: "zonal-iosched",
        commands: &["iosched"],
        cpu_seconds: 90,
    },
    Part {
        program: "zonal-iobench",
        package: "zonal-iobench",
        commands: &["tiobench", "sparsetruncate", "bonnie", "dbench"],
        cpu_seconds: 90,
    },
    Part {
        program: "zonal-calibrate",
        package: "zonal-calibrate",
        commands: &["calibrate"],
        cpu_seconds: 90,
    },
    Part {
        program: "zonal-cachetrace",
        package: "zonal-cachetrace",
        commands: &["cachetrace"],
        cpu_seconds: 90,
    },
    Part { program: "zonal-mount", package: "zonal-mount", commands: &["mount"], cpu_seconds: 100 },
];

/// Why another program did not take over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartError {
    /// It is not there, and this is no checkout to build it from.
    #[error(
        "`zonal {command}` is in the program {program}, which is not beside this one in {}; \
         `cargo install {package}` installs it, or copy it there",
        directory.display()
    )]
    Missing { command: String, program: &'static str, package: &'static str, directory: PathBuf },
    /// It could not be compiled.
    #[error("cannot build {package}: `cargo build` ended with {status}")]
    Build { package: &'static str, status: ExitStatus },
    /// The compiler could not be started.
    #[error("cannot build {package}: cannot start {}: {source}", cargo.display())]
    Cargo { package: &'static str, cargo: PathBuf, source: io::Error },
    /// It would not start.
    #[error("cannot start {}: {source}", path.display())]
    Start { path: PathBuf, source: io::Error },
    /// The system does not say where this program is.
    #[error("cannot find out where this program is: {0}")]
    Nowhere(#[source] io::Error),
    /// No program has the command.
    #[error("no command is called `{0}`; `zonal help` lists them")]
    Unknown(String),
}

impl Failure for PartError {
    fn exit_code(&self) -> u8 {
        if matches!(self, Self::Unknown(_)) { 2 } else { 1 }
    }
}

/// Where a program is, or how it comes to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// There.
    Ready(PathBuf),
    /// Cargo is to make sure that it is there.
    Cargo(Build),
    /// Nowhere.
    Missing,
}

/// How this program was built, and so how another is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Build {
    manifest: PathBuf,
    target: PathBuf,
    profile: OsString,
    triple: Option<OsString>,
}

/// The workspace that this program was compiled in; it may be gone.
fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Has the program with `command` go on as this process, with the arguments `line`.
pub(crate) fn take_over(command: &str, line: &[OsString]) -> PartError {
    match locate(command) {
        Ok(path) => {
            let source = Command::new(&path).arg0("zonal").args(line).exec();
            PartError::Start { path, source }
        }
        Err(error) => error,
    }
}

/// The path of the program with `command`, built if need be.
fn locate(command: &str) -> Result<PathBuf, PartError> {
    let has = |part: &&Part| part.commands.contains(&command);
    let part = PARTS.iter().find(has).ok_or_else(|| PartError::Unknown(command.into()))?;
    let own = std::env::current_exe().map_err(PartError::Nowhere)?;
    // `cargo run` expects of all that it runs to be what the source says now.
    let by_cargo = std::env::var_os("CARGO").is_some();
    let path = own.with_file_name(format!("{}{EXE_SUFFIX}", part.program));
    match find(part, &own, &path, &checkout(), by_cargo) {
        Found::Ready(path) => Ok(path),
        Found::Cargo(build) => match build.carry_out(part, path.exists()) {
            Err(PartError::Cargo { cargo, .. }) if path.exists() => {
                eprintln!("zonal: {} is not there, {} may be old", cargo.display(), path.display());
                Ok(path)
            }
            built => built.map(|()| path),
        },
        Found::Missing => Err(PartError::Missing {
            command: command.into(),
            program: part.program,
            package: part.package,
            directory: own.parent().map_or_else(PathBuf::new, Path::to_path_buf),
        }),
    }
}

fn find(part: &Part, own: &Path, path: &Path, checkout: &Path, by_cargo: bool) -> Found {
    let changed = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    let there: Option<SystemTime> = changed(path);
    let is_new = there.is_some() && there >= changed(own);
    match Build::like(own, checkout, part.package) {
        Some(build) if by_cargo || !is_new => Found::Cargo(build),
        _ if there.is_some() => Found::Ready(path.to_owned()),
        _ => Found::Missing,
    }
}

impl Build {
    /// How `own` was built, if it lies where Cargo put it and the checkout is there.
    fn like(own: &Path, checkout: &Path, package: &str) -> Option<Self> {
        let manifest = checkout.join("Cargo.toml");
        if !checkout.join("crates").join(package).join("Cargo.toml").is_file() {
            return None;
        }
        let is_target = |path: &&Path| path.join("CACHEDIR.TAG").is_file();
        let directory = own.parent()?;
        // Of `target/release` or `target/x86_64-unknown-linux-gnu/release`.
        let above = directory.parent()?;
        let name = |path: &Path| path.file_name().map(OsStr::to_os_string);
        let (target, triple) = match Some(above).filter(is_target) {
            Some(target) => (target, None),
            None => (above.parent().filter(is_target)?, name(above)),
        };
        let profile = match directory.file_name()? {
            name if name == "debug" => "dev".into(),
            name => name.to_os_string(),
        };
        Some(Self { manifest, target: target.to_owned(), profile, triple })
    }

    /// Has Cargo build the package of `part`; what takes time is announced.
    fn carry_out(&self, part: &Part, is_there: bool) -> Result<(), PartError> {
        let package = part.package;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&cargo);
        command.arg("build").arg("--manifest-path").arg(&self.manifest);
        command.args(["--package", package, "--bin", part.program]);
        command.arg("--profile").arg(&self.profile).arg("--target-dir").arg(&self.target);
        if let Some(triple) = &self.triple {
            command.arg("--target").arg(triple);
        }
        if is_there {
            // Nothing to say while there is nothing to do.
            command.arg("--quiet");
        } else {
            self.announce(part, "building");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let failed = |source| PartError::Cargo { package, cargo: (&cargo).into(), source };
        let mut build = command.spawn().map_err(failed)?;
        if is_there {
            let start = Instant::now();
            while build.try_wait().map_err(failed)?.is_none() {
                if start.elapsed() > Duration::from_secs(1) {
                    self.announce(part, "bringing up to date");
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        let status = build.wait().map_err(failed)?;
        if status.success() { Ok(()) } else { Err(PartError::Build { package, status }) }
    }

    fn announce(&self, part: &Part, what: &str) {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let program = part.program;
        let long = if self.profile == "release" {
            format!("up to {} on {cpus} CPUs", time(part.cpu_seconds / cpus.min(4) as u64))
        } else {
            "minutes".into()
        };
        eprintln!("zonal: {what} {program}, which has this command; once, {long}");
    }
}

/// A time to wait, no more exact than it is known.
fn time(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{} s", seconds.next_multiple_of(10)),
        more => format!("{} min", more.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const PART: Part = PARTS[1];

    /// A checkout with a target directory, and this program in it.
    struct World {
        root: tempfile::TempDir,
        own: PathBuf,
        other: PathBuf,
    }

    impl World {
        fn new(within: &str, is_target: bool) -> Self {
            let root = tempfile::tempdir().expect("a directory");
            let make = |path: &str| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                File::create(&path).expect("made");
                path
            };
            make(&format!("crates/{}/Cargo.toml", PART.package));
            if is_target {
                make("target/CACHEDIR.TAG");
            }
            let own = make(&format!("target/{within}/zonal"));
            let other = own.with_file_name(PART.program);
            Self { root, own, other }
        }

        fn other_is(&self, older: bool) {
            let file = File::create(&self.other).expect("made");
            let day = Duration::from_secs(86_400);
            let own = fs::metadata(&self.own).and_then(|it| it.modified()).expect("it is there");
            file.set_modified(if older { own - day } else { own + day }).expect("set");
        }

        fn find(&self, by_cargo: bool) -> Found {
            find(&PART, &self.own, &self.other, self.root.path(), by_cargo)
        }
    }

    #[test]
    fn what_is_there_is_taken_and_what_is_old_is_built() {
        let world = World::new("release", true);
        assert!(matches!(world.find(false), Found::Cargo(_)), "it is not there yet");
        world.other_is(false);
        assert_eq!(world.find(false), Found::Ready(world.other.clone()));
        assert!(matches!(world.find(true), Found::Cargo(_)), "cargo knows whether it is old");
        world.other_is(true);
        assert!(matches!(world.find(false), Found::Cargo(_)), "it is older");
    }

    #[test]
    fn outside_of_a_target_directory_nothing_is_built() {
        let world = World::new("release", false);
        assert_eq!(world.find(true), Found::Missing);
        world.other_is(true);
        assert_eq!(world.find(true), Found::Ready(world.other.clone()));
    }

    #[test]
    fn another_program_is_built_as_this_one_was() {
        for (within, profile, triple) in [
            ("debug", "dev", None),
            ("release", "release", None),
            ("x86_64-unknown-linux-gnu/golden", "golden", Some("x86_64-unknown-linux-gnu")),
        ] {
            let world = World::new(within, true);
            let Found::Cargo(build) = world.find(false) else { panic!("{within}") };
            assert_eq!(build.profile, profile);
            assert_eq!(build.triple.as_deref(), triple.map(OsStr::new));
            assert_eq!(build.target, world.root.path().join("target"));
        }
    }

    #[test]
    fn every_part_is_in_the_checkout_and_has_commands_of_its_own() {
        let mut commands: Vec<&str> =
            PARTS.iter().flat_map(|part| part.commands).copied().collect();
        commands.sort_unstable();
        assert_eq!(
            commands,
            [
                "bench",
                "bonnie",
                "cachetrace",
                "calibrate",
                "dbench",
                "info",
                "iosched",
                "mount",
                "record",
                "replay",
                "reproduce",
                "sim",
                "sparsetruncate",
                "tiobench"
            ]
        );
        for part in PARTS {
            let manifest = checkout().join("crates").join(part.package).join("Cargo.toml");
            assert!(manifest.is_file(), "{}", manifest.display());
        }
    }

    #[test]
    fn times_are_rough() {
        assert_eq!(time(62), "70 s");
        assert_eq!(time(130), "3 min");
    }
}
