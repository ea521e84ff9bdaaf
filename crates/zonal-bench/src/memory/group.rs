//! What the control group of the process leaves of the machine's memory, in either version of them.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// What a group and all above it leave, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// The lowest limit.
    pub(super) limit: u64,
    /// The least that is left below a limit.
    pub(super) left: u64,
}

/// Where one version keeps what.
struct Version {
    /// The controller, as `/proc/self/cgroup` has it.
    controller: &'static str,
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` that says what the group and those below it have of the page cache
    /// and did not use lately: it is given up before the limit is felt.
    idle: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        controller: "",
        mount: "sys/fs/cgroup",
        limit: "memory.max",
        used: "memory.current",
        idle: "inactive_file",
    },
    Version {
        controller: "memory",
        mount: "sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        idle: "total_inactive_file",
    },
];

/// What is left in the file system at `root`, if there is a limit.
pub(super) fn room(root: &Path) -> Option<Room> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let rooms = VERSIONS.iter().flat_map(|version| {
        let mount = root.join(version.mount);
        let own = mount.join(version.path(&groups));
        let chain: Vec<PathBuf> =
            own.ancestors().take_while(|it| it.starts_with(&mount)).map(Into::into).collect();
        chain.into_iter().filter_map(|group| version.room(&group))
    });
    rooms.reduce(|a, b| Room { limit: a.limit.min(b.limit), left: a.left.min(b.left) })
}

impl Version {
    /// The group's folder below the mount. A container may see a path that is not below its mount; then
    /// the mount is the group.
    fn path<'a>(&self, groups: &'a str) -> &'a Path {
        let path = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let mut controllers = parts.next()?.split(',');
            controllers.any(|it| it == self.controller).then(|| parts.next()).flatten()
        });
        let path = Path::new(path.unwrap_or_default().trim_start_matches('/'));
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        if is_below { path } else { Path::new("") }
    }

    /// What is left of the limit of one group. None without a limit, as in version 2 at the root.
    fn room(&self, group: &Path) -> Option<Room> {
        let number = |file: &str| {
            let text = fs::read_to_string(group.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let limit = number(self.limit)?;
        let used = number(self.used).unwrap_or(0);
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let idle = stat.lines().find_map(|line| match line.split_once(' ') {
            Some((name, value)) if name == self.idle => value.trim().parse::<u64>().ok(),
            _ => None,
        });
        let held = used.saturating_sub(idle.unwrap_or(0));
        Some(Room { limit, left: limit.saturating_sub(held) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        root
    }

    fn room_of(files: &[(&str, &str)]) -> Option<Room> {
        room(tree(files).path())
    }

    #[test]
    fn a_nested_group_has_the_least_of_all_above_it() {
        let outer = [
            ("proc/self/cgroup", "0::/outer/inner/leaf\n"),
            ("sys/fs/cgroup/outer/memory.max", "1000\n"),
            ("sys/fs/cgroup/outer/memory.current", "900\n"),
            ("sys/fs/cgroup/outer/inner/leaf/memory.max", "max\n"),
            ("sys/fs/cgroup/outer/inner/leaf/memory.current", "50\n"),
            ("sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        assert_eq!(room_of(&outer), Some(Room { limit: 1000, left: 100 }));
        let inner = [
            ("sys/fs/cgroup/outer/inner/memory.max", "300\n"),
            ("sys/fs/cgroup/outer/inner/memory.current", "60\n"),
        ];
        let both = [&outer[..], &inner].concat();
        assert_eq!(room_of(&both), Some(Room { limit: 300, left: 100 }), "left by the outer one");
        assert_eq!(room_of(&outer[..1]), None);
        assert_eq!(room_of(&[]), None);
    }

    #[test]
    fn a_full_page_cache_leaves_room() {
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "1000\n"),
            (
                "sys/fs/cgroup/memory.stat",
                "anon 100\nfile 900\ninactive_file 700\nactive_file 200\n",
            ),
        ];
        assert_eq!(room_of(&files), Some(Room { limit: 1000, left: 700 }));
        assert_eq!(room_of(&files[..3]), Some(Room { limit: 1000, left: 0 }));
    }

    #[test]
    fn version_1_has_a_mount_of_its_own() {
        let files = [
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/elsewhere\n4:memory:/job\n1:name=systemd:/\n0::/\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "800\n"),
            ("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n"),
        ];
        assert_eq!(room_of(&files), Some(Room { limit: 1000, left: 500 }));
    }

    #[test]
    fn a_container_whose_path_is_not_below_its_mount_has_the_mounts() {
        for path in ["/../beside", "/of/the/host"] {
            let line = format!("0::{path}\n");
            let files = [
                ("proc/self/cgroup", &*line),
                ("sys/fs/cgroup/memory.max", "1000\n"),
                ("sys/fs/beside/memory.max", "1\n"),
            ];
            assert_eq!(room_of(&files), Some(Room { limit: 1000, left: 1000 }), "{path}");
        }
    }
}
