//! Ctrl-C: the first one asks a command to stop and to show what it has; the second ends it.
//!
//! ```
//! zonal_cli::interrupt::watch();
//! assert!(!zonal_cli::interrupt::is_requested() && zonal_cli::interrupt::outcome().is_ok());
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::error::LabError;

/// The exit code of a program that Ctrl-C ended, as shells have it.
pub const EXIT_CODE: u8 = 130;

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on, the first Ctrl-C is a [request](is_requested). Where the system does not let a
/// signal be watched, it ends the process as before.
pub fn watch() {
    REQUESTED.get_or_init(|| {
        let requested = Arc::new(AtomicBool::new(false));
        // In this order: the first signal finds the flag not yet set.
        let second = flag::register_conditional_shutdown(
            SIGINT,
            i32::from(EXIT_CODE),
            Arc::clone(&requested),
        );
        let first = second.and_then(|_| flag::register(SIGINT, Arc::clone(&requested)));
        if first.is_err() {
            eprintln!("zonal: Ctrl-C will lose what was measured");
        }
        requested
    });
}

/// What a command ends with that has shown what it has.
///
/// # Errors
///
/// [`LabError::Interrupted`] if Ctrl-C was pressed.
pub fn outcome() -> Result<(), LabError> {
    if is_requested() { Err(LabError::Interrupted) } else { Ok(()) }
}

/// Whether Ctrl-C was pressed. Relaxed: what it decides is only when to stop.
#[must_use]
pub fn is_requested() -> bool {
    REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed))
}
