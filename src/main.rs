//! The `signet` command.

fn main() {}
