//! Serde format of a [`Time`]: RFC 3339 text with nanoseconds.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clock::{Time, format_rfc3339, parse_rfc3339};

pub(super) fn serialize<S: Serializer>(at: &Time, to: S) -> Result<S::Ok, S::Error> {
    format_rfc3339(*at).serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    let text = String::deserialize(from)?;
    parse_rfc3339("time", &text).map_err(serde::de::Error::custom)
}

pub(super) mod option {
    //! Serde format of an `Option<Time>`: RFC 3339 text with nanoseconds, or null for `None`.

    use super::*;

    pub(in crate::auth) fn serialize<S: Serializer>(at: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
        at.map(format_rfc3339).serialize(to)
    }

    pub(in crate::auth) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| parse_rfc3339("time", &text)).transpose().map_err(serde::de::Error::custom)
    }
}
