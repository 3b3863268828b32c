//! Byte budgets of the process with a limit per sender ([`crate::budget`]).

use super::sender::Sender;
use crate::budget;
pub use crate::budget::Exhausted;

/// A byte budget.
pub type SenderBudget = budget::Budget<Sender>;
/// A reservation in a byte budget.
pub type SenderReservation = budget::Reservation<Sender>;
