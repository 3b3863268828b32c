//! The code of a library: loaded once, and initialised as often as it has to be.
//!
//! Every use goes through a [`Pass`]. A module is initialised again when nobody holds one, and each time it
//! begins another *epoch*: what was opened in an earlier one is forgotten and not closed, for its numbers may
//! belong to somebody else by now.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as BindingError, RvError};

use super::healing::{Cause, Failure};
use crate::error::{Error, Kind};

/// Longest time that a call may hold up a new initialisation, which holds up all others meanwhile. While one is under
/// way for longer, none is made and nobody is held up.
const DRAIN: Duration = Duration::from_secs(1);
/// Longest time that a call waits for an initialisation under way.
const PATIENCE: Duration = Duration::from_secs(5);

/// The real paths of all modules that are loaded: a second handle to one would share its state.
static BOUND: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// One module.
pub(super) struct Module {
    path: PathBuf,
    binding: OnceLock<Pkcs11>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    /// Grows with every initialisation.
    epoch: u64,
    /// Whether the module is initialised.
    ready: bool,
    /// Since when those are inside who are.
    inside: Vec<Instant>,
    /// Somebody initialises, or waits until nobody is inside to do so.
    closed: bool,
}

/// The right to call the module; while there is one, it is not initialised again.
pub(super) struct Pass<'l> {
    owner: &'l Module,
    since: Instant,
    pub(super) module: &'l Pkcs11,
    pub(super) epoch: u64,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut gate = self.owner.lock();
        if let Some(own) = gate.inside.iter().position(|since| *since == self.since) {
            gate.inside.swap_remove(own);
        }
        if gate.closed {
            self.owner.changed.notify_all();
        }
    }
}

impl Module {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, binding: OnceLock::new(), gate: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to call the module; loads and initialises it where that has not been done.
    pub(super) fn enter(&self) -> Result<Pass<'_>, Failure> {
        let mut since = Instant::now();
        let until = since + PATIENCE;
        let mut gate = self.lock();
        loop {
            if gate.closed {
                gate = self.wait_while(gate, until, |gate| gate.closed)?;
                since = Instant::now();
            }
            match self.binding.get() {
                Some(module) if gate.ready => {
                    gate.inside.push(since);
                    return Ok(Pass { owner: self, since, module, epoch: gate.epoch });
                }
                _ => {
                    let epoch = gate.epoch;
                    drop(gate);
                    self.renew(epoch)?;
                    gate = self.lock();
                    since = Instant::now();
                }
            }
        }
    }

    /// Initialises the module again where `epoch` is still the present one. The caller holds no pass.
    pub(super) fn renew(&self, epoch: u64) -> Result<(), Failure> {
        let mut gate = self.wait_while(self.lock(), Instant::now() + PATIENCE, |gate| gate.closed)?;
        if gate.epoch != epoch {
            return Ok(());
        }
        gate.closed = true;
        // At once where somebody is inside for so long already: then nobody has seen it closed.
        let until = gate.inside.iter().min().map_or_else(Instant::now, |oldest| *oldest + DRAIN);
        let drained = match self.wait_while(gate, until, |gate| !gate.inside.is_empty()) {
            Ok(gate) => {
                let again = gate.ready;
                drop(gate);
                self.initialize(again)
            }
            Err(failure) => Err(failure),
        };
        let mut gate = self.lock();
        gate.closed = false;
        if drained.is_ok() {
            (gate.epoch, gate.ready) = (gate.epoch + 1, true);
        }
        drop(gate);
        self.changed.notify_all();
        drained
    }

    fn wait_while<'g>(
        &self,
        mut gate: MutexGuard<'g, Gate>,
        until: Instant,
        condition: impl Fn(&Gate) -> bool,
    ) -> Result<MutexGuard<'g, Gate>, Failure> {
        while condition(&gate) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::new(
                    Cause::Token,
                    "pkcs11 module: hangs in a call, or is being initialised again",
                ));
            }
            gate = self.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(gate)
    }

    /// Loads the file, which may not have been there before and be known by another path, too.
    fn load(&self) -> Result<Pkcs11, Error> {
        let real = self
            .path
            .canonicalize()
            .map_err(|error| Error::unavailable("pkcs11 library: the file of the module is not there", error))?;
        let mut bound = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if bound.contains(&real) {
            let text = "pkcs11 library: the file of the module is in use under another name of the configuration";
            return Err(Error::new(Kind::Unavailable, text));
        }
        let module = Pkcs11::new(&real)
            .map_err(|error| Error::unavailable("pkcs11 library: the module cannot be loaded", error))?;
        bound.insert(real);
        Ok(module)
    }

    /// Nobody is inside.
    fn initialize(&self, again: bool) -> Result<(), Failure> {
        let module = match self.binding.get() {
            Some(module) => module,
            None => {
                let module = self.load()?;
                self.binding.get_or_init(|| module)
            }
        };
        if again {
            // Fails where the module has lost its state by itself.
            let _ = module.clone().finalize();
        }
        match module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
            Ok(()) | Err(BindingError::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends its use, unless somebody is in a call for longer than a moment.
    pub(super) fn finalize(&self) {
        let gate = self.lock();
        let (Some(module), true) = (self.binding.get(), gate.ready) else { return };
        let is_used = |gate: &Gate| !gate.inside.is_empty() || gate.closed;
        let Ok(mut gate) = self.wait_while(gate, Instant::now() + DRAIN, is_used) else { return };
        // A later call begins anew.
        gate.ready = false;
        let _ = module.clone().finalize();
    }
}
