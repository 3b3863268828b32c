//! Paths that need `sudo` beside the capability of their operation, whether this server answers there or not.
//!
//! Routes say it themselves ([`Access::Sudo`](super::route::Access)), and a test holds them against this table. It
//! is asked where there is no route: who lacks `sudo` hears the same refusal there as from a server that has one.

use super::route::Operation;
use crate::auth::mounts::MountKind;

/// Of each kind of mount, paths below it; with a `*` at the end, all that begin so.
const SYSTEM: &[&str] = &[
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
const TOKEN: &[&str] = &["accessors", "accessors/", "revoke-orphan"];

/// Whether an operation on a path below a mount, which ends in `/` for a list, needs `sudo`.
pub fn is_needed(kind: &MountKind, below: &str, operation: Operation) -> bool {
    let among = |table: &[&str]| {
        table.iter().any(|path| path.strip_suffix('*').map_or(*path == below, |begin| below.starts_with(begin)))
    };
    match kind {
        MountKind::System => among(SYSTEM),
        MountKind::Token => among(TOKEN),
        MountKind::Pki => {
            (below == "root" && operation == Operation::Delete)
                || (below == "root/sign-self-issued" && operation == Operation::Update)
        }
        _ => false,
    }
}
