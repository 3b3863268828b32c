//! Paging parameters of list requests: `after` and `limit`.

use crate::error::Result;
use crate::fields::Fields;
use crate::x509::serial::Serial;

/// The fields of a list request that select a page.
pub(super) const PAGE_FIELDS: &[&str] = &["after", "limit"];

pub(super) struct PageParams {
    /// Only keys after this one, in sort order, are returned.
    pub(super) after: String,
    /// Maximum number of keys; `None` for no limit.
    pub(super) limit: Option<usize>,
}

impl PageParams {
    /// Reads `after` and `limit`. A `limit` that is absent, `max` or not positive requests all keys.
    ///
    /// # Errors
    /// `Invalid` naming the field.
    pub(super) fn of(fields: &Fields) -> Result<Self> {
        let limit = match fields.text("limit")?.as_deref() {
            Some("max") => 0,
            _ => fields.int("limit")?.unwrap_or(0),
        };
        Ok(Self {
            after: fields.text("after")?.unwrap_or_default(),
            limit: usize::try_from(limit).ok().filter(|n| *n > 0),
        })
    }

    /// Returns the serial number after which the page starts. An `after` that is not a serial number is valid too: the
    /// page then starts where that text would be in the sort order.
    pub(super) fn after_serial(&self) -> Option<Serial> {
        Serial::parse(&self.after).ok().or_else(|| Serial::last_up_to(&self.after))
    }

    /// Returns the requested page of sorted names.
    pub(super) fn take_page<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        names.filter(|n| *n > self.after.as_str()).take(self.limit.unwrap_or(usize::MAX)).map(str::to_owned).collect()
    }
}
