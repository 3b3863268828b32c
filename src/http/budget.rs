//! Byte budgets of the process with a limit per sender ([`crate::budget`]).

use super::sender::Sender;
use crate::budget;
pub use crate::budget::Lack;

/// A byte budget.
pub type Budget = budget::Budget<Sender>;
/// A reservation in a byte budget.
pub type Room = budget::Room<Sender>;
