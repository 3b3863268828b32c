//! The paths of mounts, for logs and metrics: a number tells nobody which mount it is.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

static PATHS: LazyLock<RwLock<HashMap<i64, String>>> = LazyLock::new(RwLock::default);

/// Tells the path of every mount, by its number; of those that are not among them nothing is known any more.
pub fn name_mounts(mounts: impl IntoIterator<Item = (i64, String)>) {
    *PATHS.write().unwrap_or_else(PoisonError::into_inner) = mounts.into_iter().collect();
}

/// The path of a mount, or that it is none any more.
pub fn mount_path(mount: i64) -> String {
    let paths = PATHS.read().unwrap_or_else(PoisonError::into_inner);
    paths.get(&mount).cloned().unwrap_or_else(|| "gone".to_owned())
}
