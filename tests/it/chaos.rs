//! Faults on real nodes under load, in an order that a seed gives: what is done to them differs from case to case, the
//! load and the judgement afterwards are the same. The load is that of the crash tests (`crash/load.rs`).
//!
//! Passed is a case whose nodes, when it is over, serve every certificate that was answered, byte for byte; no serial
//! number came twice; every acknowledged revocation is on the CRL of every node; CRL numbers only grew, and each means
//! one list; the counters are what a full scan finds, and `signet operator verify-backup` finds nothing wrong with the
//! store, nor with the copy of it that was made in the middle ([`site::Site::judge`]). Meanwhile every request was
//! answered, by 200, or by 503 with `Retry-After`. In the middle of each case the data key is rotated and the store is
//! copied.
//!
//! Every case prints `SIGNET_FAULTS_SEED=…`; set to that number it plays the same order again, as far as the machine
//! does. `SIGNET_FAULTS=long` plays many more rounds, overload for a minute with figures that must be reached, and the
//! rolling upgrade from an older program. That one is built from the history of this repository
//! (`SIGNET_FAULTS_OLD_COMMIT` names another commit than the usual one), or is the binary `SIGNET_FAULTS_OLD_BINARY`.

pub mod clocks;
mod copies;
mod databases;
mod overload;
mod proxy;
mod retry_after;
mod seed;
mod site;
mod standby;
mod steps;
mod upgrade;
mod ways;
