//! Budgets of octets that senders share ([`crate::budget`]).

use super::sender::Sender;
use crate::budget;
pub use crate::budget::Lack;

/// The budget of a process.
pub type Budget = budget::Budget<Sender>;
/// The part of it that one thing has taken.
pub type Room = budget::Room<Sender>;
