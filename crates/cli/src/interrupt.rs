//! Ctrl-C and SIGTERM: the first is a flag that work looks at, the second ends the process.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag. From the first call on, signals set it instead of ending the process.
pub fn stop_flag() -> Arc<AtomicBool> {
    let flag = STOP.get_or_init(|| {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Registered first, so that it sees the flag as the signal before left it.
            let registered = flag::register_conditional_shutdown(signal, 130, stop.clone())
                .and_then(|_| flag::register(signal, stop.clone()));
            // A system that refuses this ends the process at the first signal, which is safe too.
            let _ = registered;
        }
        stop
    });
    flag.clone()
}
