//! The loaded code of a library, which may be initialized repeatedly.
//!
//! Every use holds a [`ModulePass`]; the module is initialized again only while no pass exists. Each initialization
//! begins another *epoch*. Sessions of an earlier epoch are forgotten and not closed, because their handles may belong
//! to other sessions by now.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as BindingError, RvError};

use super::recovery::{Pkcs11Failure, Pkcs11FailureCause};
use crate::error::{Error, Kind};

/// Maximum time that an initialization waits for calls in progress. During this time it blocks all other calls. If a
/// call in progress has already taken longer, the initialization fails at once and blocks nothing.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time that a call waits for an initialization in progress.
const INITIALIZATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Real paths of all loaded modules. Two instances of a module would share its state.
static LOADED_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

pub(super) struct Module {
    path: PathBuf,
    binding: OnceLock<Pkcs11>,
    state: Mutex<ModuleState>,
    changed: Condvar,
}

#[derive(Default)]
struct ModuleState {
    /// Incremented by every initialization.
    epoch: u64,
    /// `true` if the module is initialized.
    ready: bool,
    /// Start times of the passes that exist now.
    pass_starts: Vec<Instant>,
    /// `true` while a thread initializes the module, or waits until it can.
    initializing: bool,
}

/// Permission to call the module. While one exists, the module is not initialized again.
pub(super) struct ModulePass<'l> {
    owner: &'l Module,
    since: Instant,
    pub(super) module: &'l Pkcs11,
    pub(super) epoch: u64,
}

impl Drop for ModulePass<'_> {
    fn drop(&mut self) {
        let mut state = self.owner.lock();
        if let Some(index) = state.pass_starts.iter().position(|since| *since == self.since) {
            state.pass_starts.swap_remove(index);
        }
        if state.initializing {
            self.owner.changed.notify_all();
        }
    }
}

impl Module {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, binding: OnceLock::new(), state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ModuleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns permission to call the module. Loads and initializes it first if necessary.
    pub(super) fn acquire_pass(&self) -> Result<ModulePass<'_>, Pkcs11Failure> {
        let mut since = Instant::now();
        let until = since + INITIALIZATION_TIMEOUT;
        let mut state = self.lock();
        loop {
            if state.initializing {
                state = self.wait_while(state, until, |state| state.initializing)?;
                since = Instant::now();
            }
            match self.binding.get() {
                Some(module) if state.ready => {
                    state.pass_starts.push(since);
                    return Ok(ModulePass { owner: self, since, module, epoch: state.epoch });
                }
                _ => {
                    let epoch = state.epoch;
                    drop(state);
                    self.reinitialize(epoch)?;
                    state = self.lock();
                    since = Instant::now();
                }
            }
        }
    }

    /// Initializes the module again if `epoch` is still current. The caller must not hold a pass.
    pub(super) fn reinitialize(&self, epoch: u64) -> Result<(), Pkcs11Failure> {
        let mut state =
            self.wait_while(self.lock(), Instant::now() + INITIALIZATION_TIMEOUT, |state| state.initializing)?;
        if state.epoch != epoch {
            return Ok(());
        }
        state.initializing = true;
        // Fails immediately if a call has been running for too long already, so that no other call is blocked.
        let until = state.pass_starts.iter().min().map_or_else(Instant::now, |oldest| *oldest + DRAIN_TIMEOUT);
        let drained = match self.wait_while(state, until, |state| !state.pass_starts.is_empty()) {
            Ok(state) => {
                let again = state.ready;
                drop(state);
                self.initialize(again)
            }
            Err(failure) => Err(failure),
        };
        let mut state = self.lock();
        state.initializing = false;
        if drained.is_ok() {
            (state.epoch, state.ready) = (state.epoch + 1, true);
        }
        drop(state);
        self.changed.notify_all();
        drained
    }

    fn wait_while<'g>(
        &self,
        mut state: MutexGuard<'g, ModuleState>,
        until: Instant,
        condition: impl Fn(&ModuleState) -> bool,
    ) -> Result<MutexGuard<'g, ModuleState>, Pkcs11Failure> {
        while condition(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Pkcs11Failure::new(
                    Pkcs11FailureCause::Token,
                    "pkcs11 module: hangs in a call, or is being initialized again; retry later",
                ));
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state)
    }

    /// Loads the file, if it exists by now. Fails if it is loaded under another path already.
    fn load(&self) -> Result<Pkcs11, Error> {
        let real = self
            .path
            .canonicalize()
            .map_err(|error| Error::unavailable("pkcs11 library: the file of the module does not exist", error))?;
        let mut bound = LOADED_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if bound.contains(&real) {
            let text = "pkcs11 library: the file of the module is already loaded under another library name";
            return Err(Error::new(Kind::Unavailable, text));
        }
        let module = Pkcs11::new(&real)
            .map_err(|error| Error::unavailable("pkcs11 library: the module cannot be loaded", error))?;
        bound.insert(real);
        Ok(module)
    }

    /// Initializes the module, and finalizes it first if `again` is `true`. The caller ensures that no pass exists.
    fn initialize(&self, again: bool) -> Result<(), Pkcs11Failure> {
        let module = match self.binding.get() {
            Some(module) => module,
            None => {
                let module = self.load()?;
                self.binding.get_or_init(|| module)
            }
        };
        if again {
            // The error is ignored: the module may have lost its state by itself.
            let _ = module.clone().finalize();
        }
        match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
            Ok(()) | Err(BindingError::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Finalizes the module, unless a call has been running for too long.
    pub(super) fn finalize(&self) {
        let state = self.lock();
        let (Some(module), true) = (self.binding.get(), state.ready) else { return };
        let is_used = |state: &ModuleState| !state.pass_starts.is_empty() || state.initializing;
        let Ok(mut state) = self.wait_while(state, Instant::now() + DRAIN_TIMEOUT, is_used) else { return };
        // A later call of the module initializes it again.
        state.ready = false;
        let _ = module.clone().finalize();
    }
}
