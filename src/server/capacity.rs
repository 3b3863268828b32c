//! Limits on open files and connections.
//!
//! Without a free file descriptor the process cannot read its store or open a database session. So some descriptors are
//! reserved, and connections may use the rest ([`compute_main_caps`]). Each connection may run one request without a
//! permit; every further concurrent request on an HTTP/2 connection needs one.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use super::ConnectionLimits;

/// Minimum number of file descriptors reserved for the store, database sessions, policy engines, logs and the metrics
/// listener. An eighth of the file limit is reserved if that is more. [`FILES_PER_WORKER`] for each worker are added.
const MIN_RESERVED_FILES: usize = 128;
/// Number of file descriptors that a worker needs for its event loop.
const FILES_PER_WORKER: usize = 4;
/// Default limit on connections of the main listener. An idle connection costs some tens of KiB of memory.
const DEFAULT_MAX_CONNECTIONS: usize = 10_000;
/// Minimum limit on connections of a listener, even if there are too few file descriptors for it.
const MIN_CONNECTIONS: usize = 16;

/// Default limit on connections of the public listener.
const DEFAULT_MAX_PUBLIC_CONNECTIONS: usize = 1000;
/// The public listener may have at most this fraction (a quarter) of all connections.
const PUBLIC_CONNECTIONS_DIVISOR: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionCaps {
    /// Maximum number of connections of the listener.
    pub(super) total: usize,
    /// Maximum number of connections from one address.
    pub(super) per_address: usize,
}

impl ConnectionCaps {
    /// Returns by how many open connections may exceed the limit for a short time: those that are still closing, and
    /// newly accepted ones.
    pub(super) fn overshoot(self) -> usize {
        (self.total / 16).max(16)
    }

    /// Creates permits for concurrent requests beyond the first of each connection: as many as there may be
    /// connections, and at least [`MIN_EXTRA_REQUESTS`].
    pub(super) fn request_permits(self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(self.total.max(MIN_EXTRA_REQUESTS)))
    }
}

/// Minimum number of permits for concurrent requests beyond the first of each connection.
const MIN_EXTRA_REQUESTS: usize = 1000;

/// Raises the soft limit of open files to the hard limit, and returns the limit in effect.
pub(super) fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let limit_in_effect = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!("the soft limit of open files cannot be raised to the hard limit: {error}");
            limit.current
        }
    };
    limit_in_effect.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

/// Computes the connection limits of the public listener from its setting `wanted` and the limit of open files: at most
/// a quarter of all connections, so that enough are left for the main listener.
pub(super) fn compute_public_caps(wanted: usize, files: usize, workers: usize) -> ConnectionCaps {
    let possible = (max_connections_for_files(files, workers) / PUBLIC_CONNECTIONS_DIVISOR).max(MIN_CONNECTIONS);
    let total = match wanted {
        0 => possible.min(DEFAULT_MAX_PUBLIC_CONNECTIONS),
        given if given > possible => {
            tracing::warn!(
                files,
                "public_max_connections: reduced from {given} to {possible}; the rest is reserved for the main listener"
            );
            possible
        }
        given => given,
    };
    tracing::info!(files, public_max_connections = total, "connection limit of the public listener");
    ConnectionCaps { total, per_address: total.div_ceil(2) }
}

/// Computes the connection limits of the main listener from its settings and the limit of open files.
pub(super) fn compute_main_caps(wanted: ConnectionLimits, files: usize, workers: usize) -> ConnectionCaps {
    let possible = max_connections_for_files(files, workers);
    let total = match wanted.max {
        0 => possible.min(DEFAULT_MAX_CONNECTIONS),
        given if given > possible => {
            tracing::warn!(
                files,
                "max_connections: reduced from {given} to {possible}, because the limit of open files is too low; \
                 raise that limit (LimitNOFILE= of systemd)"
            );
            possible
        }
        given => given,
    };
    let per_address = match wanted.max_per_address {
        0 => total.div_ceil(2),
        given => given.min(total),
    };
    tracing::info!(
        files,
        max_connections = total,
        max_connections_per_address = per_address,
        "connection limits of the main listener"
    );
    ConnectionCaps { total, per_address }
}

/// Returns the largest connection limit for which the connections, their [`ConnectionCaps::overshoot`] and the reserved
/// descriptors fit into the limit of open files, `files`.
fn max_connections_for_files(files: usize, workers: usize) -> usize {
    let reserved = MIN_RESERVED_FILES.max(files / 8) + FILES_PER_WORKER * workers;
    let available = files.saturating_sub(reserved);
    (available / 17 * 16).min(available.saturating_sub(16)).max(MIN_CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn main_caps(max: usize, max_per_address: usize, files: usize) -> ConnectionCaps {
        compute_main_caps(ConnectionLimits { max, max_per_address, max_public: 0 }, files, 2)
    }

    #[test]
    fn connection_caps_reserve_an_eighth_of_the_file_limit() {
        for files in [256, 1024, 4096, 65_536, 1 << 20] {
            let caps = main_caps(usize::MAX, 0, files);
            let left = files - caps.total - caps.overshoot();
            assert!(left >= (files / 8).max(MIN_RESERVED_FILES), "{files}: {caps:?}");
            assert!(left <= files / 8 + MIN_RESERVED_FILES + 64, "{files}: {caps:?} is not more than it must be");
        }
        assert_eq!([64, 0].map(|files| main_caps(0, 0, files).total), [MIN_CONNECTIONS, MIN_CONNECTIONS]);
    }

    #[test]
    fn extra_requests_are_limited_to_the_connection_cap() {
        for (total, max) in [(16, MIN_EXTRA_REQUESTS), (2000, 2000)] {
            let permits = ConnectionCaps { total, per_address: 1 }.request_permits();
            let mut taken: Vec<_> = std::iter::from_fn(|| permits.try_acquire().ok()).collect();
            assert_eq!(taken.len(), max);
            taken.pop();
            let _again = permits.try_acquire().unwrap();
            assert!(permits.try_acquire().is_err());
        }
    }

    #[test]
    fn public_listener_cap_is_subtracted_from_the_main_one() {
        for files in [256, 1024, 4096, 65_536, 1 << 20] {
            let public = compute_public_caps(0, files, 2);
            let main = main_caps(0, 0, files - public.total - public.overshoot());
            assert!(public.total <= DEFAULT_MAX_PUBLIC_CONNECTIONS && public.per_address * 2 >= public.total);
            let taken = public.total + public.overshoot() + main.total + main.overshoot();
            assert!(files - taken >= MIN_RESERVED_FILES.min(files / 8), "{files}: {public:?} {main:?}");
            assert!(main.total >= public.total, "{files}: {public:?} {main:?}");
        }
        assert_eq!(compute_public_caps(7, 1024, 2), ConnectionCaps { total: 7, per_address: 4 });
        assert_eq!(compute_public_caps(5000, 1024, 2).total, 832 / 4);
    }

    #[test]
    fn connection_limits_are_capped_by_open_files() {
        assert_eq!(
            main_caps(0, 0, 1 << 20),
            ConnectionCaps { total: DEFAULT_MAX_CONNECTIONS, per_address: DEFAULT_MAX_CONNECTIONS / 2 }
        );
        assert_eq!(main_caps(0, 0, 1024), ConnectionCaps { total: 832, per_address: 416 });
        assert_eq!(main_caps(100, 7, 1024), ConnectionCaps { total: 100, per_address: 7 });
        assert_eq!(main_caps(50_000, 60_000, 1024), ConnectionCaps { total: 832, per_address: 832 });
    }
}
