//! PKCS #11 libraries by configured name. Each file has one instance for the lifetime of the process.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::backoff::ReinitializationBackoff;
use super::module::{Module, ModulePass};
use super::recovery::Pkcs11Failure;
use super::token::{Pkcs11Token, TokenAddress};
use crate::error::{Error, Kind, Result};

/// All libraries that this process has ever configured, by the real path of the module's file. Two instances of a
/// module would share its state.
static LOADED_LIBRARIES: Mutex<BTreeMap<PathBuf, Arc<Library>>> = Mutex::new(BTreeMap::new());

/// The configured libraries; clones share them.
#[derive(Clone, Default)]
pub struct Libraries(Arc<BTreeMap<String, Arc<Library>>>);

impl Libraries {
    /// Validates names and files. Loads no module: a broken one must not delay the start.
    ///
    /// # Errors
    /// `Invalid` for a duplicate name or one with characters other than letters, digits, `_` and `-`; and for a path
    /// that is not absolute or no regular file.
    pub fn new(stanzas: impl IntoIterator<Item = (String, PathBuf)>) -> Result<Self> {
        Self::with_path_resolver(stanzas, |path| path.canonicalize())
    }

    /// As [`Libraries::new`], but a file may be missing, for example on a file system that is mounted later. Until it
    /// appears, its keys are unavailable, and each use looks for the file again.
    ///
    /// # Errors
    /// As [`Libraries::new`].
    pub fn new_allowing_missing(stanzas: impl IntoIterator<Item = (String, PathBuf)>) -> Result<Self> {
        Self::with_path_resolver(stanzas, |path| match path.canonicalize() {
            Err(_) if path.is_absolute() => {
                tracing::warn!(file = %path.display(), "the file of a pkcs11 library does not exist yet");
                Ok(path.to_owned())
            }
            real => real,
        })
    }

    fn with_path_resolver(
        stanzas: impl IntoIterator<Item = (String, PathBuf)>,
        real: impl Fn(&Path) -> std::io::Result<PathBuf>,
    ) -> Result<Self> {
        let mut libraries = BTreeMap::new();
        for (name, path) in stanzas {
            let name = name.to_ascii_lowercase();
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
            if name.is_empty() || !name.chars().all(allowed) {
                return Err(Error::invalid(format!(
                    "pkcs11 library {name:?}: the name must consist of letters, digits, - and _"
                )));
            }
            let library = Library::open(&name, &path, &real)?;
            if libraries.insert(name.clone(), library).is_some() {
                return Err(Error::invalid(format!("pkcs11 library {name:?}: configured twice")));
            }
        }
        Ok(Self(Arc::new(libraries)))
    }

    pub(super) fn get(&self, name: &str) -> Result<Arc<Library>> {
        let found = self.0.get(&name.to_ascii_lowercase()).cloned();
        found.ok_or_else(|| {
            let name: String = name.chars().take(64).collect();
            Error::invalid(format!("no kms_library configured with name {name:?}"))
        })
    }

    /// `true` if a library name refers to the same file in both configurations, or is missing in both.
    pub(in crate::keys) fn has_same_library(&self, other: &Self, name: &str) -> bool {
        match (self.get(name), other.get(name)) {
            (Ok(this), Ok(other)) => Arc::ptr_eq(&this, &other),
            (this, other) => this.is_err() && other.is_err(),
        }
    }

    /// Finalizes all modules, as the last step of a shutdown after the actors have stopped. Skips a module
    /// that hangs in a call.
    pub fn close(&self) {
        for library in self.0.values() {
            library.module.finalize();
        }
    }
}

pub(super) struct Library {
    pub(super) module: Module,
    pub(super) reinitialization_backoff: ReinitializationBackoff,
    tokens: Mutex<TokensBySlot>,
    /// Labels of all tokens that this process has ever read from the module.
    seen_labels: Mutex<HashSet<String>>,
    /// Held while a key is generated.
    pub(super) generation_lock: Mutex<()>,
}

/// The tokens in use, by slot number. They are valid for one epoch, from one initialization of the module to the next.
#[derive(Default)]
struct TokensBySlot {
    epoch: u64,
    by_slot: HashMap<u64, Arc<Pkcs11Token>>,
}

impl Library {
    fn open(name: &str, path: &Path, real: impl Fn(&Path) -> std::io::Result<PathBuf>) -> Result<Arc<Self>> {
        let wrong = |rule: &str| Error::invalid(format!("pkcs11 library {name:?}: {} {rule}", path.display()));
        if !path.is_absolute() {
            return Err(wrong("is not an absolute path"));
        }
        let real = real(path).map_err(|e| {
            Error::of_file(&format!("pkcs11 library {name:?}"), path, "read", e).with_kind(Kind::Invalid)
        })?;
        let metadata = real.metadata().ok();
        if metadata.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            return Err(wrong("is not a regular file"));
        }
        if metadata.is_some_and(|metadata| metadata.permissions().mode() & 0o022 != 0) {
            tracing::warn!(library = name, "users other than its owner can write the file of a pkcs11 library");
        }
        let mut loaded = LOADED_LIBRARIES.lock().unwrap_or_else(PoisonError::into_inner);
        // A library whose file was missing is stored under its configured path, not under its real path.
        let is_same = |path: &Path| *path == real || path.canonicalize().is_ok_and(|path| path == real);
        if let Some((_, library)) = loaded.iter().find(|(path, _)| is_same(path)) {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self {
            module: Module::new(real.clone()),
            reinitialization_backoff: ReinitializationBackoff::default(),
            tokens: Mutex::default(),
            seen_labels: Mutex::default(),
            generation_lock: Mutex::default(),
        });
        loaded.insert(real, Arc::clone(&library));
        Ok(library)
    }

    pub(super) fn token(
        &self,
        pass: &ModulePass<'_>,
        address: &TokenAddress,
    ) -> Result<Arc<Pkcs11Token>, Pkcs11Failure> {
        let (slot, info) = address.find_token(pass, &self.seen_labels)?;
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.epoch != pass.epoch {
            *tokens = TokensBySlot { epoch: pass.epoch, by_slot: HashMap::new() };
        }
        let token = tokens.by_slot.entry(slot.id()).or_insert_with(|| Arc::new(Pkcs11Token::new(slot, info.as_ref())));
        Ok(Arc::clone(token))
    }
}
