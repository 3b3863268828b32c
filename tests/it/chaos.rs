//! Fault injection on real nodes under load, in an order given by a seed. The load is `crash/load.rs`.
//!
//! After each case ([`site::Site::judge`]) no acknowledged certificate or revocation is lost, and no serial or CRL
//! number is repeated. The counters are exact, and `verify-backup` passes, also for a backup made during the case.
//! Every response was a 200, or a 503 with `Retry-After`.
//!
//! `SIGNET_FAULTS_SEED` repeats a printed seed. `SIGNET_FAULTS=long` runs more rounds, a minute of overload and the
//! rolling upgrade (`SIGNET_FAULTS_OLD_COMMIT`, `SIGNET_FAULTS_OLD_BINARY`).

pub mod clocks;
mod copies;
mod databases;
mod overload;
mod proxy;
mod retry_after;
mod seed;
mod site;
mod slow_connections;
mod standby;
mod steps;
mod upgrade;
