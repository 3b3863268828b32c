//! The page that a list request asks for: `after` and `limit`.

use crate::error::Result;
use crate::fields::Fields;
use crate::x509::serial::Serial;

/// A page of keys in byte order.
pub(super) struct Page {
    /// Keys above this one.
    pub(super) after: String,
    /// At most so many; `None`: all.
    pub(super) limit: Option<usize>,
}

impl Page {
    /// Reads `after`, and `limit`, which stands for all where it is absent, `max`, or not above 0.
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

    /// Where a page of serials begins: above this one. Any text is taken, as in lists of names: what is no
    /// serial stands where it sorts among the texts of serials.
    pub(super) fn after_serial(&self) -> Option<Serial> {
        Serial::parse(&self.after).ok().or_else(|| Serial::last_up_to(&self.after))
    }

    /// The page of names that are already in byte order.
    pub(super) fn cut<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        names.filter(|n| *n > self.after.as_str()).take(self.limit.unwrap_or(usize::MAX)).map(str::to_owned).collect()
    }
}
