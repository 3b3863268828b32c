//! Nothing that was answered as done is lost: the real program under load, killed, its database killed,
//! its disk failing or full; and after each, everything that was acknowledged is looked for.
//!
//! [`load`] asks and writes down what was acknowledged, [`audit`] looks for it, [`place`] is where the
//! data is. A test that needs a right which this machine does not give (to trace, to mount) says so and
//! is left out, unless `TESTS_LEAVE_NOTHING_OUT` is set: then it fails.

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

/// Says that a test is left out, where it is seen although the test passes.
pub fn left_out(why: &str) {
    assert!(std::env::var_os("TESTS_LEAVE_NOTHING_OUT").is_none(), "{} cannot be left out here: {why}", test_name());
    left_out_anywhere(why);
}

/// As [`left_out`], of a test whose tools Debian does not have.
pub fn left_out_anywhere(why: &str) {
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {}: {why}", test_name());
}

fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}
