//! The paths of mounts by id, for logs and metrics.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

static MOUNT_PATHS: LazyLock<RwLock<HashMap<i64, String>>> = LazyLock::new(RwLock::default);

/// Sets the path of every mount, by its id. Replaces all earlier paths.
pub fn set_mount_paths(mounts: impl IntoIterator<Item = (i64, String)>) {
    *MOUNT_PATHS.write().unwrap_or_else(PoisonError::into_inner) = mounts.into_iter().collect();
}

/// Returns the path of a mount, or `gone` if it does not exist.
pub fn mount_path(mount: i64) -> String {
    let paths = MOUNT_PATHS.read().unwrap_or_else(PoisonError::into_inner);
    paths.get(&mount).cloned().unwrap_or_else(|| "gone".to_owned())
}
