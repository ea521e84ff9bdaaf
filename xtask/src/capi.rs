//! The C interface: built and installed, and its examples in C run under the sanitizers. `cargo xtask capi`,
//! `cargo xtask c-examples`.

use crate::kernel::{Boot, WELL, WRONG, emulator, require_emulator};
use crate::no_std::{BARE, is_installed};
use crate::steps::target_dir;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use xshell::{Shell, cmd};

/// The package.
const PACKAGE: &str = "zonal-capi";
/// Its header and its examples.
const FOLDER: &str = "crates/zonal-capi";

/// What to install, and where.
#[derive(Args)]
pub(crate) struct Install {
    /// The folder that gets `include`, `lib` and `lib/pkgconfig`
    #[arg(long)]
    prefix: PathBuf,
    /// The kernel's target; without it the kernel's library is for this machine's
    #[arg(long)]
    target: Option<String>,
}

/// Which of the two libraries.
#[derive(Clone, Copy)]
enum For {
    UserSpace,
    Kernel,
}

impl Install {
    pub(crate) fn run(&self, shell: &Shell) -> Result<()> {
        let pool = build(shell, For::UserSpace, None)?;
        let kernel = build(shell, For::Kernel, self.target.as_deref())?;
        install(shell, &self.prefix, &pool, &kernel)?;
        eprintln!("installed in {}", self.prefix.display());
        Ok(())
    }
}

/// Installs into an empty folder, and builds and runs the examples from there: each with the address and
/// undefined-behaviour sanitizers.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let folder = shell.create_temp_dir()?;
    let prefix = folder.path();
    let pool = build(shell, For::UserSpace, None)?;
    let kernel = build(shell, For::Kernel, None)?;
    install(shell, prefix, &pool, &kernel)?;
    let native = native_libraries(shell)?;
    let include = prefix.join("include");
    let warnings = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1"];
    let sanitizers = "-fsanitize=address,undefined";
    for (name, library, more) in [
        ("kernel", "-lzonal-kernel", Vec::new()),
        ("pool", "-lzonal", native.split_whitespace().collect()),
    ] {
        let (source, program) = (format!("{FOLDER}/examples/{name}.c"), prefix.join(name));
        let libraries = prefix.join("lib");
        let build = cmd!(
            shell,
            "gcc {warnings...} {sanitizers} -fno-sanitize-recover=all -I {include} {source}"
        );
        build.args(["-o"]).arg(&program).arg("-L").arg(&libraries).arg(library).args(more).run()?;
        cmd!(shell, "{program}").run().with_context(|| format!("the example {source}"))?;
    }
    ensure!(shell.path_exists(prefix.join("lib/pkgconfig/zonal.pc")), "no file for pkg-config");
    if is_installed(shell, BARE)? {
        boot(shell, prefix)?;
    } else {
        eprintln!(
            "target {BARE} is not installed: the kernel's library was built for this machine only, and no \
             kernel in C was booted"
        );
    }
    Ok(())
}

/// Boots the kernel in C, with its own source as the initial ramdisk; and once more with a frame lost, which it must
/// find.
fn boot(shell: &Shell, prefix: &Path) -> Result<()> {
    let library = build(shell, For::Kernel, Some(BARE))?;
    require_emulator(shell)?;
    let (include, folder) = (prefix.join("include"), format!("{FOLDER}/examples/boot"));
    let source = format!("{folder}/boot.c");
    let [start, kernel, image] = ["start.o", "boot.o", "boot"].map(|name| prefix.join(name));
    cmd!(shell, "gcc -c {folder}/start.S -o {start}").run()?;
    let flags = "-std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ffreestanding -fno-pic -fno-stack-protector \
        -mno-red-zone -mgeneral-regs-only";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    for (more, wanted, sentence) in [
        ("-DALL_IS_WELL", WELL, "all frames are there"),
        ("-DLOSE_A_FRAME", WRONG, "free_frames() == at_boot + came"),
    ] {
        let flags = &flags;
        cmd!(shell, "gcc {flags...} {more} -I {include} -c {source} -o {kernel}").run()?;
        let objects = [&kernel, &start, &library];
        cmd!(shell, "ld -static -T {folder}/boot.ld {objects...} -o {image}").run()?;
        let output = emulator(&image, &Boot::of(1, 1, ""))?.args(["-initrd", &source]).output();
        let output = output.context("`timeout` cannot be run")?;
        let said = String::from_utf8_lossy(&output.stdout);
        eprint!("{said}{}", String::from_utf8_lossy(&output.stderr));
        let code = output.status.code();
        ensure!(
            code == Some(wanted) && said.contains(sentence),
            "{source} with {more} ended with {code:?}, not {wanted}, or did not say `{sentence}`"
        );
    }
    Ok(())
}

/// Builds a static library and says where it is. One without the standard library must abort on a panic:
/// there is nothing that could unwind.
fn build(shell: &Shell, which: For, target: Option<&str>) -> Result<PathBuf> {
    let (folder, features) = match which {
        For::UserSpace => ("user-space", ["--features", "std"]),
        For::Kernel => ("kernel", ["--features", ""]),
    };
    let dir = target_dir(shell).join("capi").join(folder);
    let of_target: Vec<&str> = target.map_or_else(Vec::new, |target| vec!["--target", target]);
    let kind =
        ["--release", "--locked", "--lib", "--crate-type", "staticlib", "--no-default-features"];
    cmd!(shell, "cargo rustc -p {PACKAGE} {kind...} {features...} {of_target...}")
        .env("CARGO_TARGET_DIR", &dir)
        .env(
            "CARGO_PROFILE_RELEASE_PANIC",
            if matches!(which, For::Kernel) { "abort" } else { "unwind" },
        )
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .run()?;
    Ok(dir.join(target.unwrap_or("")).join("release/libzonal_capi.a"))
}

/// What the standard library needs of the system's, as its compiler says.
fn native_libraries(shell: &Shell) -> Result<String> {
    let said = cmd!(shell, "rustc --print native-static-libs --crate-type staticlib -")
        .stdin("")
        // A file of its own: what is there is replaced, be it a device.
        .arg("-o")
        .arg(target_dir(shell).join("native-static-libs.a"))
        .read_stderr()?;
    let line = said.lines().find_map(|line| line.split_once("native-static-libs: "));
    Ok(line
        .map_or("-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc", |(_, libraries)| libraries)
        .to_owned())
}

fn install(shell: &Shell, prefix: &Path, pool: &Path, kernel: &Path) -> Result<()> {
    let libraries = prefix.join("lib");
    shell.create_dir(prefix.join("include"))?;
    shell.create_dir(libraries.join("pkgconfig"))?;
    shell.copy_file(format!("{FOLDER}/include/zonal.h"), prefix.join("include/zonal.h"))?;
    shell.copy_file(pool, libraries.join("libzonal.a"))?;
    shell.copy_file(kernel, libraries.join("libzonal-kernel.a"))?;
    let native = native_libraries(shell)?;
    let prefix = std::path::absolute(prefix)?;
    let text = format!(
        "prefix={}\nName: zonal\nDescription: page-frame allocator: a pool of pages\nVersion: {}\n\
         Cflags: -I${{prefix}}/include\nLibs: -L${{prefix}}/lib -lzonal {native}\n",
        prefix.display(),
        env!("CARGO_PKG_VERSION"),
    );
    Ok(shell.write_file(libraries.join("pkgconfig/zonal.pc"), text)?)
}
