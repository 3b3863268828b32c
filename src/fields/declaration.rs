//! Declarations of resources that the store holds and the API reads and writes.
//!
//! `resource!` declares each field of a resource once. The declaration generates the stored struct, its defaults, the
//! list of field names, and the tables with which fields of common types are read from requests and rendered in
//! responses.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Fields, ListLimit};
use crate::clock::DurationText;
use crate::error::Result;
use crate::secret::Secret;

/// A field of a common type: its name, and access to its value in the resource `R`.
pub struct FieldSlot<R, T> {
    /// Name of the field in requests, responses and errors.
    pub name: &'static str,
    /// Returns the value of the field.
    pub get: fn(&R) -> &T,
    /// Returns the value of the field for changing it.
    pub get_mut: fn(&mut R) -> &mut T,
}

impl<R, T> FieldSlot<R, T> {
    /// Creates the slot of the field `name`.
    pub const fn new(name: &'static str, get: fn(&R) -> &T, get_mut: fn(&mut R) -> &mut T) -> Self {
        Self { name, get, get_mut }
    }

    /// Sets the value of the field in `resource`, if `given` is not `None`.
    pub fn set_if_given(&self, resource: &mut R, given: Option<T>) {
        if let Some(value) = given {
            *(self.get_mut)(resource) = value;
        }
    }
}

impl<R, T: Serialize> FieldSlot<R, T> {
    /// Renders the field of `resource` as a member of a JSON object.
    pub fn to_member(&self, resource: &R) -> (String, Value) {
        (self.name.to_owned(), json!((self.get)(resource)))
    }
}

/// The slot of a list field, with the limit of the list.
pub struct ListFieldSlot<R> {
    /// Name of the field, and access to its list.
    pub slot: FieldSlot<R, Vec<String>>,
    /// Maximum number and length of the list's entries.
    pub limit: ListLimit,
}

/// A resource that `resource!` declares. The tables contain the fields in the order of the declaration.
pub trait Resource: Default + 'static {
    /// Names of all fields of the resource.
    const FIELDS: &'static [&'static str];
    /// The fields of the kind `flag`.
    const FLAGS: &'static [FieldSlot<Self, bool>];
    /// The fields of the kind `seconds`: durations in whole seconds.
    const SECONDS: &'static [FieldSlot<Self, u64>];
    /// The fields of the kind `duration`: durations that are stored as the client wrote them.
    const DURATIONS: &'static [FieldSlot<Self, DurationText>];
    /// The fields of the kind `text`.
    const TEXTS: &'static [FieldSlot<Self, String>];
    /// The fields of the kind `timespan`: durations that are stored without the text that the client wrote.
    const TIMESPANS: &'static [FieldSlot<Self, Duration>];
    /// The fields of the kind `integer`.
    const INTEGERS: &'static [FieldSlot<Self, i64>];
    /// The fields of the kind `list`.
    const LISTS: &'static [ListFieldSlot<Self>];
    /// The fields of the kind `secret`.
    const SECRETS: &'static [FieldSlot<Self, Secret>];

    /// Sets the `flag` fields from a request. Fields that the request does not contain are unchanged.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    fn merge_flags(&mut self, fields: &Fields) -> Result<()> {
        for slot in Self::FLAGS {
            slot.set_if_given(self, fields.bool(slot.name)?);
        }
        Ok(())
    }

    /// Sets the `text` fields from a request, with at most `max_bytes` bytes each. Fields that the request does not
    /// contain are unchanged.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    fn merge_texts(&mut self, fields: &Fields, max_bytes: usize) -> Result<()> {
        for slot in Self::TEXTS {
            slot.set_if_given(self, fields.text_within(slot.name, max_bytes)?);
        }
        Ok(())
    }

    /// Sets the fields of durations and whole numbers from a request. Fields that the request does not contain are
    /// unchanged.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    fn merge_numbers(&mut self, fields: &Fields) -> Result<()> {
        for slot in Self::TIMESPANS {
            slot.set_if_given(self, fields.duration(slot.name)?);
        }
        for slot in Self::INTEGERS {
            slot.set_if_given(self, fields.int(slot.name)?);
        }
        Ok(())
    }

    /// Sets the `list` fields from a request. Fields that the request does not contain are unchanged.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    fn merge_lists(&mut self, fields: &Fields) -> Result<()> {
        for ListFieldSlot { slot, limit } in Self::LISTS {
            slot.set_if_given(self, fields.list_within(slot.name, *limit)?);
        }
        Ok(())
    }

    /// Renders the fields in all these tables except the secrets, as members of a JSON object. Time spans are rendered
    /// in whole seconds, rounded down.
    fn to_members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        members.extend(Self::FLAGS.iter().map(|slot| slot.to_member(self)));
        members.extend(Self::SECONDS.iter().map(|slot| slot.to_member(self)));
        members.extend(Self::DURATIONS.iter().map(|slot| slot.to_member(self)));
        members.extend(Self::TIMESPANS.iter().map(|slot| (slot.name.to_owned(), (slot.get)(self).as_secs().into())));
        members.extend(Self::INTEGERS.iter().map(|slot| slot.to_member(self)));
        members.extend(Self::TEXTS.iter().map(|slot| slot.to_member(self)));
        members.extend(Self::LISTS.iter().map(|list| list.slot.to_member(self)));
        members
    }
}

/// Declares a resource. Each row declares one member of the struct: its documentation, serde attributes, kind, name and
/// default (without one, the default of the type). The members have the order of the rows. The last column says which
/// names the row adds to `FIELDS`; "the member" stands for the member's own name.
///
/// | kind | type | fields |
/// |---|---|---|
/// | `flag` | `bool` | the member |
/// | `seconds` | `u64` | the member |
/// | `duration` | [`DurationText`] | the member |
/// | `timespan` | [`Duration`] | the member |
/// | `integer` | `i64` | the member |
/// | `text` | `String` | the member |
/// | `secret` | [`Secret`] | the member |
/// | `list(LIMIT)` | `Vec<String>` | the member |
/// | `value NAME: TYPE` | any | the member, read and rendered by code of its own |
/// | `stored NAME: TYPE` | any | none, or those named `as [NAMES]`; read and rendered by code of their own |
macro_rules! resource {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@slot $name:ident) => {
        $crate::fields::FieldSlot::<Self, _>::new(stringify!($name), |r| &r.$name, |r| &mut r.$name)
    };
    (
        $(#[$header:meta])*
        $visibility:vis struct $resource:ident {
            $(
                $(#[$attribute:meta])*
                $(flag $flag:ident)?
                $(seconds $seconds:ident)?
                $(duration $duration:ident)?
                $(timespan $timespan:ident)?
                $(integer $integer:ident)?
                $(text $text:ident)?
                $(secret $secret:ident)?
                $(list($limit:expr) $list:ident)?
                $(value $value:ident)?
                $(stored $stored:ident)?
                $(: $type:ty)?
                $(as [$($name:expr),+])?
                $(= $default:expr)?;
            )+
        }
    ) => {
        $(#[$header])*
        $visibility struct $resource {
            $(
                $(#[$attribute])*
                $($visibility $flag: bool)?
                $($visibility $seconds: u64)?
                $($visibility $duration: $crate::clock::DurationText)?
                $($visibility $timespan: std::time::Duration)?
                $($visibility $integer: i64)?
                $($visibility $text: String)?
                $($visibility $secret: $crate::secret::Secret)?
                $($visibility $list: Vec<String>)?
                $($visibility $value)?
                $($visibility $stored)?
                $(: $type)?,
            )+
        }

        impl Default for $resource {
            fn default() -> Self {
                Self {
                    $(
                        $($flag)? $($seconds)? $($duration)? $($timespan)? $($integer)? $($text)? $($secret)? $($list)?
                        $($value)? $($stored)?:
                            $crate::fields::resource!(@default $($default)?),
                    )+
                }
            }
        }

        impl $crate::fields::Resource for $resource {
            const FIELDS: &'static [&'static str] = &[$(
                $(stringify!($flag),)?
                $(stringify!($seconds),)?
                $(stringify!($duration),)?
                $(stringify!($timespan),)?
                $(stringify!($integer),)?
                $(stringify!($text),)?
                $(stringify!($secret),)?
                $(stringify!($list),)?
                $(stringify!($value),)?
                $($($name,)+)?
            )+];
            const FLAGS: &'static [$crate::fields::FieldSlot<Self, bool>] =
                &[$($($crate::fields::resource!(@slot $flag),)?)+];
            const SECONDS: &'static [$crate::fields::FieldSlot<Self, u64>] =
                &[$($($crate::fields::resource!(@slot $seconds),)?)+];
            const DURATIONS: &'static [$crate::fields::FieldSlot<Self, $crate::clock::DurationText>] =
                &[$($($crate::fields::resource!(@slot $duration),)?)+];
            const TIMESPANS: &'static [$crate::fields::FieldSlot<Self, std::time::Duration>] =
                &[$($($crate::fields::resource!(@slot $timespan),)?)+];
            const INTEGERS: &'static [$crate::fields::FieldSlot<Self, i64>] =
                &[$($($crate::fields::resource!(@slot $integer),)?)+];
            const TEXTS: &'static [$crate::fields::FieldSlot<Self, String>] =
                &[$($($crate::fields::resource!(@slot $text),)?)+];
            const SECRETS: &'static [$crate::fields::FieldSlot<Self, $crate::secret::Secret>] =
                &[$($($crate::fields::resource!(@slot $secret),)?)+];
            const LISTS: &'static [$crate::fields::ListFieldSlot<Self>] = &[$($(
                $crate::fields::ListFieldSlot { slot: $crate::fields::resource!(@slot $list), limit: $limit },
            )?)+];
        }
    };
}

pub(crate) use resource;
