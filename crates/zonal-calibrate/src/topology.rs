//! What `/sys` says of the machine: sockets, cores, threads, caches.
//!
//! What it does not say (a container may hide it) is assumed, and the assumption noted.
//!
//! ```
//! use std::path::Path;
//! use zonal_calibrate::topology::Hardware;
//!
//! let silent = Hardware::read(Path::new("/nonexistent"), &[0, 1]);
//! assert_eq!((silent.sockets(), silent.cores_per_socket()), (1, 2));
//! assert!(!silent.notes.is_empty(), "nothing said how they lie");
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where Linux describes the CPUs.
pub const CPUS: &str = "/sys/devices/system/cpu";

/// Sizes where nothing is said: those of a common server, in KiB.
const INNER_KIB: u32 = 32;
const PRIVATE_KIB: u32 = 1024;
const SHARED_KIB: u32 = 16 * 1024;

/// One CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// The socket it is in.
    pub socket: usize,
    /// The smallest number of the CPUs of its core.
    pub core: usize,
}

/// How two CPUs lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kinship {
    /// Threads of one core.
    Sibling,
    /// Cores of one socket.
    Socket,
    /// In different sockets.
    Apart,
}

/// The caches of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The innermost, in KiB.
    pub inner_kib: u32,
    /// The outermost that the core has for itself, in KiB.
    pub private_kib: u32,
    /// One instance of the outermost, in KiB.
    pub shared_kib: u32,
    /// All instances of that in a socket, in KiB.
    pub socket_kib: u32,
    /// Whether `/sys` said so.
    pub known: bool,
}

/// The machine as `/sys` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// The CPUs that are online.
    pub cpus: Vec<Cpu>,
    /// Threads of a core, at most.
    pub threads_per_core: usize,
    /// The caches of the first CPU that may be used.
    pub caches: Caches,
    /// What was assumed.
    pub notes: Vec<String>,
}

impl Hardware {
    /// Reads the description at `root`, normally [`CPUS`]; `allowed` are the CPUs that this
    /// process may use, and all there are if `root` does not say.
    #[must_use]
    pub fn read(root: &Path, allowed: &[usize]) -> Self {
        let mut notes = Vec::new();
        let online = number_list(root, "online").unwrap_or_else(|| {
            notes.push("which CPUs are online is not said: those this process may use".into());
            allowed.to_vec()
        });
        let cpus: Option<Vec<Cpu>> = online.iter().map(|&number| cpu(root, number)).collect();
        let cpus = cpus.unwrap_or_else(|| {
            notes.push("how the CPUs lie is not said: cores of one socket".into());
            online.iter().map(|&number| Cpu { number, socket: 0, core: number }).collect()
        });
        let first = allowed.first().copied().unwrap_or(0);
        let mates = |number: usize| {
            let core = cpus.iter().find(|cpu| cpu.number == number)?.core;
            Some(cpus.iter().filter(|cpu| cpu.core == core).map(|cpu| cpu.number).collect())
        };
        let own: Vec<usize> = mates(first).unwrap_or_else(|| vec![first]);
        let socket = cpus.iter().find(|cpu| cpu.number == first).map_or(0, |cpu| cpu.socket);
        let of_socket = cpus.iter().filter(|cpu| cpu.socket == socket).count();
        let caches = caches(root, first, &own, of_socket).unwrap_or_else(|| {
            notes.push("the sizes of the caches are not said: those of a common server".into());
            Caches {
                inner_kib: INNER_KIB,
                private_kib: PRIVATE_KIB,
                shared_kib: SHARED_KIB,
                socket_kib: SHARED_KIB,
                known: false,
            }
        });
        let in_core = |cpu: &Cpu| cpus.iter().filter(|other| other.core == cpu.core).count();
        let threads_per_core = cpus.iter().map(in_core).max().unwrap_or(1);
        Self { cpus, threads_per_core, caches, notes }
    }

    /// Sockets.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.cpus.iter().map(|cpu| cpu.socket).collect::<BTreeSet<_>>().len().max(1)
    }

    /// Cores of the socket that has the most.
    #[must_use]
    pub fn cores_per_socket(&self) -> usize {
        let cores: BTreeSet<_> = self.cpus.iter().map(|cpu| (cpu.socket, cpu.core)).collect();
        let of = |socket| cores.iter().filter(|core| core.0 == socket).count();
        cores.iter().map(|core| of(core.0)).max().unwrap_or(1)
    }

    /// How two CPUs lie; cores of one socket if one of them is not known.
    #[must_use]
    pub fn kinship(&self, a: usize, b: usize) -> Kinship {
        let find = |number| self.cpus.iter().find(|cpu| cpu.number == number);
        match (find(a), find(b)) {
            (Some(a), Some(b)) if a.core == b.core => Kinship::Sibling,
            (Some(a), Some(b)) if a.socket != b.socket => Kinship::Apart,
            _ => Kinship::Socket,
        }
    }

    /// One CPU of each core of the socket of the first of `allowed`, out of `allowed`.
    #[must_use]
    pub fn cores_of_first_socket(&self, allowed: &[usize]) -> Vec<usize> {
        let mut chosen: Vec<usize> = Vec::new();
        for &cpu in allowed {
            if chosen.iter().all(|&other| self.kinship(cpu, other) == Kinship::Socket) {
                chosen.push(cpu);
            }
        }
        chosen
    }

    /// Pairs out of `allowed` to measure: all of them, or of each kinship `most` that lie spread
    /// over the machine.
    #[must_use]
    pub fn pairs(&self, allowed: &[usize], most: usize) -> Vec<(usize, usize, Kinship)> {
        let mut pairs = Vec::new();
        for (at, &a) in allowed.iter().enumerate() {
            pairs.extend(allowed[at + 1..].iter().map(|&b| (a, b, self.kinship(a, b))));
        }
        pairs.sort_by_key(|pair| pair.2);
        let chosen = pairs.chunk_by(|one, other| one.2 == other.2).flat_map(|alike| {
            let step = alike.len().div_ceil(most.max(1)).max(1);
            alike.iter().copied().step_by(step)
        });
        chosen.collect()
    }
}

fn text(root: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(root.join(name)).ok()?.trim().to_owned())
}

fn number_list(root: &Path, name: &str) -> Option<Vec<usize>> {
    parse_list(&text(root, name)?)
}

/// The numbers of a list like `0-3,8`; `None` if it is none, is empty, or names CPUs that no
/// affinity mask has a bit for.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    const MOST: usize = 1 << 16;
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// KiB of a size like `1024K`; `None` if it is none.
#[must_use]
pub fn parse_kib(text: &str) -> Option<u32> {
    let (number, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1),
        b'M' => (&text[..text.len() - 1], 1024),
        _ => return Some(text.parse::<u32>().ok()? / 1024),
    };
    number.parse::<u32>().ok()?.checked_mul(factor)
}

fn cpu(root: &Path, number: usize) -> Option<Cpu> {
    let topology = root.join(format!("cpu{number}/topology"));
    // Some virtual machines say -1: one socket.
    let socket = text(&topology, "physical_package_id")?.parse::<i64>().ok()?;
    let mates = number_list(&topology, "core_cpus_list")
        .or_else(|| number_list(&topology, "thread_siblings_list"))?;
    let core = mates.into_iter().min()?;
    Some(Cpu { number, socket: usize::try_from(socket).unwrap_or(0), core })
}

/// One cache, with who shares it.
struct Cache {
    level: u32,
    kib: u32,
    sharers: Vec<usize>,
}

fn cache(root: &Path, index: usize, number: usize) -> Option<Cache> {
    let cache = root.join(format!("cpu{number}/cache/index{index}"));
    let data = text(&cache, "type")? != "Instruction";
    let level = text(&cache, "level")?.parse().ok()?;
    let kib = parse_kib(&text(&cache, "size")?).filter(|&kib| kib > 0)?;
    let sharers = number_list(&cache, "shared_cpu_list")?;
    data.then_some(Cache { level, kib, sharers })
}

/// `own`: the CPUs of the core. A core's own is every cache that only they share, except the
/// third level and beyond, which a virtual machine with one CPU has for itself.
fn caches(root: &Path, number: usize, own: &[usize], of_socket: usize) -> Option<Caches> {
    // Indexes are dense, but one may be of instructions or say nothing.
    let mut all: Vec<Cache> = (0..8).filter_map(|index| cache(root, index, number)).collect();
    all.sort_by_key(|cache| cache.level);
    let is_own = |cache: &Cache| cache.level < 3 && cache.sharers.iter().all(|it| own.contains(it));
    let private = all.iter().rfind(|cache| is_own(cache))?.kib;
    let shared = all.iter().rfind(|cache| !is_own(cache))?;
    let instances = (of_socket / shared.sharers.len().max(1)).max(1) as u32;
    Some(Caches {
        inner_kib: all.first()?.kib,
        private_kib: private,
        shared_kib: shared.kib,
        socket_kib: shared.kib.saturating_mul(instances),
        known: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A description of `sockets` × `cores` × `threads`, numbered as Linux does: first threads
    /// first.
    fn tree(name: &str, sockets: usize, cores: usize, threads: usize) -> PathBuf {
        let root = std::env::temp_dir().join(format!("zonal-sys-{}-{name}", std::process::id()));
        let all = sockets * cores;
        let list = |cpus: &mut dyn Iterator<Item = usize>| {
            cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",")
        };
        for cpu in 0..all * threads {
            let (core, socket) = (cpu % all, cpu % all / cores);
            let write = |file: &str, text: &str| {
                let path = root.join(format!("cpu{cpu}/{file}"));
                fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                fs::write(path, format!("{text}\n")).expect("written");
            };
            let mates = list(&mut (0..threads).map(|thread| core + thread * all));
            let near = list(&mut (0..all * threads).filter(|it| it % all / cores == socket));
            write("topology/physical_package_id", &socket.to_string());
            write("topology/core_cpus_list", &mates);
            for (index, (level, kind, size, sharers)) in [
                (1, "Data", "32K", &mates),
                (1, "Instruction", "64K", &mates),
                (2, "Unified", "1M", &mates),
                (3, "Unified", "36608K", &near),
            ]
            .into_iter()
            .enumerate()
            {
                write(&format!("cache/index{index}/level"), &level.to_string());
                write(&format!("cache/index{index}/type"), kind);
                write(&format!("cache/index{index}/size"), size);
                write(&format!("cache/index{index}/shared_cpu_list"), sharers);
            }
        }
        fs::write(root.join("online"), format!("0-{}\n", all * threads - 1)).expect("written");
        root
    }

    #[test]
    fn two_sockets_with_threads() {
        let root = tree("two", 2, 3, 2);
        let allowed: Vec<usize> = (0..12).collect();
        let machine = Hardware::read(&root, &allowed);
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!((machine.sockets(), machine.cores_per_socket()), (2, 3));
        assert_eq!(machine.threads_per_core, 2);
        assert_eq!(machine.notes, Vec::<String>::new());
        let caches = machine.caches;
        assert_eq!((caches.inner_kib, caches.private_kib), (32, 1024));
        assert_eq!((caches.shared_kib, caches.socket_kib), (36608, 36608));
        assert_eq!(machine.kinship(0, 6), Kinship::Sibling);
        assert_eq!(machine.kinship(0, 8), Kinship::Socket);
        assert_eq!(machine.kinship(2, 3), Kinship::Apart);
        assert_eq!(machine.cores_of_first_socket(&allowed), [0, 1, 2]);
        assert_eq!(machine.cores_of_first_socket(&[7, 1, 2]), [7, 2]);
        assert_eq!(machine.pairs(&allowed, usize::MAX).len(), 66);
        let some = machine.pairs(&allowed, 4);
        for kinship in [Kinship::Sibling, Kinship::Socket, Kinship::Apart] {
            let alike = some.iter().filter(|pair| pair.2 == kinship).count();
            assert!((1..=4).contains(&alike), "{kinship:?}: {some:?}");
        }
    }

    #[test]
    fn one_cpu_has_its_third_level_as_shared_cache() {
        let root = tree("one", 1, 1, 1);
        let machine = Hardware::read(&root, &[0]);
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!((machine.caches.private_kib, machine.caches.shared_kib), (1024, 36608));
        assert!(machine.pairs(&[0], 4).is_empty());
    }

    #[test]
    fn lists_and_sizes() {
        assert_eq!(parse_list("0-2,7"), Some(vec![0, 1, 2, 7]));
        for bad in ["", "a", "3-1", "1-", "0-999999999999", "99999999"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
        assert_eq!(
            (parse_kib("32K"), parse_kib("2M"), parse_kib("65536")),
            (Some(32), Some(2048), Some(64))
        );
        assert_eq!((parse_kib(""), parse_kib("K"), parse_kib("9999999M")), (None, None, None));
    }
}
