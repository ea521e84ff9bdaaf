//! Presets by name, and what is to be done on one that is known by name only.
//!
//! ```
//! use zonal_scenario::preset::{Preset, preset_called};
//!
//! assert_eq!(preset_called("skip-merge"), Ok(Preset::SkipMerge));
//! ```

use zonal::policy::Sound;
use zonal::preset;

/// A preset that real memory cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no preset is called `{name}`; known presets: {known}")]
pub struct UnknownPreset {
    /// The name.
    pub name: String,
    /// The names there are.
    pub known: String,
}

/// The allocator under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Linux 4.16.
    Linux416,
    /// The same with per-CPU caches so large that `page_fault1` never leaves them.
    HugeBatch,
    /// Patch 2 of the 2018 series.
    SkipMerge,
    /// Patches 2 and 3.
    Cluster,
    /// Patches 2 to 4.
    ClusterFree,
    /// Linux 6.3, the base of the 2023 series.
    Linux63,
    /// The same with four instances of the zone type `Normal` on each node.
    SplitZones,
    /// Linux 4.13: as 4.16, and lists are freed one by one.
    Linux413,
    /// Linux 3.16: the fair walk, exact dirty limits.
    Linux316,
    /// Patch 3 of the 2014 series as it was posted: flags, batches of a quarter of a zone.
    FairZonePosted,
    /// The same as it was reviewed: the fair walk with flags.
    FairZone,
    /// Patches 3 and 4: and cached dirty limits.
    LessDirty,
    /// zonal's own.
    Zonal,
}

impl Preset {
    /// All of them, in the order of the sources.
    pub const ALL: [Self; 13] = [
        Self::Linux416,
        Self::HugeBatch,
        Self::SkipMerge,
        Self::Cluster,
        Self::ClusterFree,
        Self::Linux63,
        Self::SplitZones,
        Self::Linux413,
        Self::Linux316,
        Self::FairZonePosted,
        Self::FairZone,
        Self::LessDirty,
        Self::Zonal,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux416 => "Linux416",
            Self::HugeBatch => "HugeBatch",
            Self::SkipMerge => "SkipMerge",
            Self::Cluster => "Cluster",
            Self::ClusterFree => "ClusterFree",
            Self::Linux63 => "Linux63",
            Self::SplitZones => "SplitZones",
            Self::Linux413 => "Linux413",
            Self::Linux316 => "Linux316",
            Self::FairZonePosted => "FairZonePosted",
            Self::FairZone => "FairZone",
            Self::LessDirty => "LessDirty",
            Self::Zonal => "Zonal",
        }
    }

    /// What it is, for a person.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Linux416 => "Linux 4.16, the base of the 2018 series",
            Self::HugeBatch => "the same with per-CPU caches that are never left",
            Self::SkipMerge => "2018, patch 2: order 0 is not merged",
            Self::Cluster => "2018, patches 2 and 3: order 0 leaves in clusters",
            Self::ClusterFree => "2018, patches 2 to 4: and comes back in clusters",
            Self::Linux63 => "Linux 6.3, the base of the 2023 series",
            Self::SplitZones => "Linux 6.3 with four Normal zones on each node",
            Self::Linux413 => "Linux 4.13: lists are freed one by one",
            Self::Linux316 => "Linux 3.16: the fair walk, exact dirty limits",
            Self::FairZonePosted => {
                "2014, patch 3 as posted: flags, batches of a quarter of a zone"
            }
            Self::FairZone => "2014, patch 3 as reviewed: the fair walk with flags",
            Self::LessDirty => "2014, patches 3 and 4: and cached dirty limits",
            Self::Zonal => "zonal's own, the default",
        }
    }

    /// Runs `work` on the preset's type. That of [`HugeBatch`](Self::HugeBatch) is
    /// [`Linux416`](zonal::preset::Linux416): its larger caches are a setting, not a type.
    pub fn with<W: OnPreset>(self, work: W) -> W::Output {
        match self {
            Self::Linux416 | Self::HugeBatch => work.run::<preset::Linux416>(),
            Self::SkipMerge => work.run::<preset::SkipMerge>(),
            Self::Cluster => work.run::<preset::Cluster>(),
            Self::ClusterFree => work.run::<preset::ClusterFree>(),
            Self::Linux63 => work.run::<preset::Linux63>(),
            Self::SplitZones => work.run::<preset::SplitZones>(),
            Self::Linux413 => work.run::<preset::Linux413>(),
            Self::Linux316 => work.run::<preset::Linux316>(),
            Self::FairZonePosted => work.run::<preset::FairZonePosted>(),
            Self::FairZone => work.run::<preset::FairZone>(),
            Self::LessDirty => work.run::<preset::LessDirty>(),
            Self::Zonal => work.run::<preset::Zonal>(),
        }
    }
}

/// Something to do on a preset that is known by name only: see [`Preset::with`].
///
/// It is compiled once for each preset, so a large one should hand over to code that is not
/// generic as soon as it can.
///
/// ```
/// use zonal::policy::Sound;
/// use zonal_scenario::preset::{OnPreset, Preset};
///
/// struct Name;
/// impl OnPreset for Name {
///     type Output = &'static str;
///     fn run<S: Sound>(self) -> &'static str {
///         S::NAME
///     }
/// }
/// assert_eq!(Preset::Cluster.with(Name), "Cluster");
/// ```
pub trait OnPreset {
    /// What comes of it.
    type Output;

    /// Does it on the preset `S`.
    fn run<S: Sound>(self) -> Self::Output;
}

/// Whether `text` names what is called `name`: in any case, and with or without dashes.
///
/// ```
/// use zonal_scenario::preset::is_called;
///
/// assert!(is_called("SkipMerge", "skip-merge") && is_called("buddy_system_allocator", "BuddySystemAllocator"));
/// assert!(!is_called("Cluster", "ClusterFree"));
/// ```
#[must_use]
pub fn is_called(name: &str, text: &str) -> bool {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    plain(name) == plain(text)
}

/// The preset [that `text` names](is_called): `SkipMerge`, `skip-merge`.
///
/// # Errors
///
/// A text with the names there are.
pub fn preset_called(text: &str) -> Result<Preset, String> {
    let found = Preset::ALL.into_iter().find(|preset| is_called(preset.name(), text));
    found.ok_or_else(|| {
        let known: Vec<_> = Preset::ALL.iter().map(|preset| preset.name()).collect();
        format!("no preset is called `{text}`; known presets: {}", known.join(", "))
    })
}

/// The presets that real memory can have: per-CPU caches of `HugeBatch`'s size are the
/// simulator's, an arena takes no such setting.
pub fn on_memory() -> impl Iterator<Item = Preset> {
    Preset::ALL.into_iter().filter(|preset| *preset != Preset::HugeBatch)
}

/// Runs `work` on a preset that real memory can have.
///
/// # Errors
///
/// [`UnknownPreset`] for any other.
pub fn with_preset<W: OnPreset>(preset: Preset, work: W) -> Result<W::Output, UnknownPreset> {
    if on_memory().any(|known| known == preset) {
        return Ok(preset.with(work));
    }
    let known: Vec<_> = on_memory().map(Preset::name).collect();
    Err(UnknownPreset { name: preset.name().into(), known: known.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name;

    impl OnPreset for Name {
        type Output = &'static str;
        fn run<S: Sound>(self) -> &'static str {
            S::NAME
        }
    }

    #[test]
    fn every_preset_has_the_type_of_its_name() {
        for preset in Preset::ALL {
            let name = if preset == Preset::HugeBatch { "Linux416" } else { preset.name() };
            assert_eq!(preset.with(Name), name);
        }
    }
}
