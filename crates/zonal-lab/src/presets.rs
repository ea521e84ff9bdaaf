//! Presets by name.

use zonal_sim::run::{OnPreset, Preset};

use crate::error::LabError;

/// The preset of that name, in any case and with or without dashes: `SkipMerge`, `skip-merge`.
///
/// # Errors
///
/// A text with the names there are.
pub(crate) fn preset_called(text: &str) -> Result<Preset, String> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let found = Preset::ALL.into_iter().find(|preset| plain(preset.name()) == plain(text));
    found.ok_or_else(|| {
        let known: Vec<_> = Preset::ALL.iter().map(|preset| preset.name()).collect();
        format!("no preset is called `{text}`; known presets: {}", known.join(", "))
    })
}

/// The presets that real memory can have: per-CPU caches of `HugeBatch`'s size are the
/// simulator's, an arena takes no such setting.
pub(crate) fn on_memory() -> impl Iterator<Item = Preset> {
    Preset::ALL.into_iter().filter(|preset| *preset != Preset::HugeBatch)
}

/// Runs `work` on a preset that real memory can have.
///
/// # Errors
///
/// [`LabError::UnknownPreset`] for any other.
pub(crate) fn with_preset<W: OnPreset>(preset: Preset, work: W) -> Result<W::Output, LabError> {
    if on_memory().any(|known| known == preset) {
        return Ok(preset.with(work));
    }
    let known: Vec<_> = on_memory().map(Preset::name).collect();
    Err(LabError::UnknownPreset { name: preset.name().into(), known: known.join(", ") })
}
