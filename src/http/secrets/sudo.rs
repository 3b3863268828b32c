//! Paths that require `sudo` in addition to the capability of their operation.
//!
//! Routes declare this themselves ([`RouteAccess::Sudo`](super::route::RouteAccess)), and a test compares their
//! declarations with this table. The table also covers paths without a route: for those, a caller without `sudo` gets
//! the same error as from a compatible server that has the route.

use super::route::Operation;
use crate::auth::mounts::MountKind;

/// Paths below `sys/` that require `sudo`. A `*` at the end matches all paths with that prefix.
const SYSTEM_SUDO_PATHS: &[&str] = &[
    "audit",
    "audit/*",
    "auth/*",
    "compromised-keys",
    "compromised-keys/",
    "compromised-keys/*",
    "config/auditing/*",
    "config/cors",
    "config/ui/headers/*",
    "internal/inspect/*",
    "leases",
    "leases/",
    "leases/lookup/*",
    "leases/revoke-force/*",
    "leases/revoke-prefix/*",
    "plugins/catalog/*",
    "raw",
    "raw/*",
    "remount",
    "rotate",
    "rotate/keyring",
    "rotate/root",
    "seal",
    "step-down",
];
const TOKEN_SUDO_PATHS: &[&str] = &["accessors", "accessors/", "revoke-orphan"];

/// `true` if an operation on a path below a mount requires `sudo`. The path of a list ends in `/`.
pub fn requires_sudo(kind: &MountKind, below_mount: &str, operation: Operation) -> bool {
    let among = |table: &[&str]| {
        table
            .iter()
            .any(|path| path.strip_suffix('*').map_or(*path == below_mount, |begin| below_mount.starts_with(begin)))
    };
    match kind {
        MountKind::System => among(SYSTEM_SUDO_PATHS),
        MountKind::Token => among(TOKEN_SUDO_PATHS),
        MountKind::Pki => {
            (below_mount == "root" && operation == Operation::Delete)
                || (below_mount == "root/sign-self-issued" && operation == Operation::Update)
        }
        _ => false,
    }
}
