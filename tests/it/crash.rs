//! Crash tests: the real program under load is killed, its database is killed, its disk fails or is full. No
//! acknowledged change may be lost.
//!
//! [`load`] sends requests and records what was acknowledged, [`audit`] checks it, [`place`] holds the data. A test
//! that lacks a right on this machine (to trace, to mount) is skipped with a message, or fails if
//! `TESTS_LEAVE_NOTHING_OUT` is set.

pub mod audit;
mod failing_disk;
mod full_disk;
mod kill;
pub mod load;
mod order;
mod outage;
pub mod place;
mod restarts;
pub mod strace;

use std::io::Write;

/// Reports on standard error that a test is skipped.
pub fn left_out(why: &str) {
    assert!(std::env::var_os("TESTS_LEAVE_NOTHING_OUT").is_none(), "{} cannot be left out here: {why}", test_name());
    left_out_anywhere(why);
}

/// Like [`left_out`], for tests whose tools Debian does not package.
pub fn left_out_anywhere(why: &str) {
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {}: {why}", test_name());
}

fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}
