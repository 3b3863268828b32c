//! Parses and renders the members of a role.
//!
//! Members that are absent from the request come from a base: the defaults for a write, the stored role for a patch.
//! `null` sets the default in both.

use serde_json::{Value, json};

use super::policies;
use crate::error::{Error, Result};
use crate::fields::{FieldSlot, Fields, ListFieldSlot, MAX_NAME_LEN, Resource as _};
use crate::http::secrets::dialect::Dialect;
use crate::http::secrets::pki::json_with_members;
use crate::pki::mount::role::{NotAfterBound, NotBeforeBound, Role, RoleKeys, SerialNumberSource, SignatureBits};
use crate::pki::values::original_text::Rfc3339Text;
use crate::pki::values::{Keyword as _, check_ext_key_usage, check_key_usage, whole_seconds};

/// Fields of a request that writes a role.
pub(crate) const FIELDS: &[&str] = Role::FIELDS;

/// Fields whose value is a single word or a time. Each has its own parsing rules.
const WORD_FIELDS: [&str; 6] =
    ["key_type", "not_before", "not_before_bound", "not_after", "not_after_bound", "serial_number_source"];

/// Renders a role. Lists are arrays, and durations whole seconds; only `ttl` and `max_ttl` have the dialect's format.
pub(crate) fn role_json(role: &Role, dialect: Dialect) -> Value {
    let time = |time: &Option<Rfc3339Text>| json!(time.as_ref().map_or("", Rfc3339Text::as_str));
    let others = [
        ("key_type", json!(role.keys.key_type())),
        ("key_bits", json!(role.keys.bits().max(role.unused_key_bits))),
        ("signature_bits", json!(role.signature_bits.bits())),
        ("policy_identifiers", json!(role.policy_identifiers)),
        ("ttl", dialect.render_lifetime(role.ttl)),
        ("max_ttl", dialect.render_lifetime(role.max_ttl)),
        ("not_before", time(&role.not_before)),
        ("not_before_bound", json!(role.not_before_bound.as_str())),
        ("not_after", time(&role.not_after)),
        ("not_after_bound", json!(role.not_after_bound.as_str())),
        ("serial_number_source", json!(role.serial_number_source.as_str())),
    ];
    json_with_members(role.to_members(), others)
}

/// Reads a role from a write, or from a patch with the stored role as `base`. Rules between members are checked by
/// [`Role`].
///
/// # Errors
/// `Invalid` with the field and the rule that it breaks.
pub(crate) fn read(fields: &Fields, base: Option<&Role>) -> Result<Role> {
    let mut reader = RoleReader { fields, role: base.cloned().unwrap_or_default(), defaults: Role::default() };
    reader.read_slots(Role::FLAGS, |name| fields.bool(name))?;
    for ListFieldSlot { slot, limit } in Role::lists() {
        reader.set_or_reset(slot.name, slot.get_mut, fields.list_within(slot.name, *limit)?);
    }
    reader.read_slots(Role::TEXTS, |name| read_word(fields, name))?;
    // Values that are not text or are too long are rejected before the rules below are checked.
    WORD_FIELDS.iter().try_for_each(|name| read_word(fields, name).map(drop))?;
    reader.read_slots(Role::SECONDS, |name| fields.duration(name)?.map(|d| whole_seconds(name, d)).transpose())?;
    let number = |name| fields.int(name)?.map(|n| parse_size(name, n)).transpose();
    let key_bits = number("key_bits")?;
    let signature_bits = number("signature_bits")?;
    reader.set_or_reset("policy_identifiers", |r| &mut r.policy_identifiers, policies::read(fields)?);
    let mut role = reader.role;
    if fields.has("key_usage") {
        check_key_usage(&role.key_usage)?;
        role.key_usage_is_named = true;
    } else if fields.is_null("key_usage") {
        role.key_usage_is_named = false;
    }
    if fields.has("ext_key_usage") {
        check_ext_key_usage(&role.ext_key_usage)?;
    }
    let unless_null = |name: &str| base.filter(|_| !fields.is_null(name));
    // If several rules are broken, the error is that of the first rule in this order.
    role.check_limits()?;
    let key_type = read_word(fields, "key_type")?;
    let key_type = key_type.as_deref().or(unless_null("key_type").map(|base| base.keys.key_type()));
    let bits = key_bits.or(unless_null("key_bits").map(|base| base.keys.bits()));
    role.keys = RoleKeys::new(key_type.unwrap_or("rsa"), bits.unwrap_or(0))?;
    let unused = key_bits.or(unless_null("key_bits").map(|base| base.unused_key_bits));
    role.unused_key_bits = unused.filter(|_| role.keys.bits() == 0).unwrap_or(0);
    let of_base = unless_null("signature_bits").map(|base| base.signature_bits);
    role.signature_bits = signature_bits.map(SignatureBits::new).transpose()?.or(of_base).unwrap_or_default();
    role.normalize_lists()?;
    read_bounds(fields, &mut role)?;
    Ok(role)
}

fn parse_size(field: &str, number: i64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::invalid(format!("{field}: unsupported size")))
}

struct RoleReader<'a> {
    fields: &'a Fields,
    role: Role,
    defaults: Role,
}

impl RoleReader<'_> {
    fn read_slots<T: Clone>(
        &mut self,
        slots: &[FieldSlot<Role, T>],
        value: impl Fn(&str) -> Result<Option<T>>,
    ) -> Result<()> {
        for slot in slots {
            self.set_or_reset(slot.name, slot.get_mut, value(slot.name)?);
        }
        Ok(())
    }

    fn set_or_reset<T: Clone>(&mut self, name: &str, slot: fn(&mut Role) -> &mut T, given: Option<T>) {
        if let Some(value) = given {
            *slot(&mut self.role) = value;
        } else if self.fields.is_null(name) {
            *slot(&mut self.role) = slot(&mut self.defaults).clone();
        }
    }
}

/// Reads a text and removes the surrounding whitespace.
fn read_word(fields: &Fields, name: &str) -> Result<Option<String>> {
    Ok(fields.text_within(name, MAX_NAME_LEN)?.map(|text| text.trim().to_owned()))
}

/// Reads the limits on validity dates and the source of serial numbers. Empty text sets the default, like `null`.
fn read_bounds(fields: &Fields, role: &mut Role) -> Result<()> {
    let defaults = Role::default();
    let given = |name: &str| -> Result<Option<String>> {
        Ok(read_word(fields, name)?.or_else(|| fields.is_null(name).then(String::new)))
    };
    if let Some(text) = given("not_before")? {
        role.not_before = parse_time("not_before", text)?;
    }
    if let Some(text) = given("not_after")? {
        role.not_after = parse_time("not_after", text)?;
    }
    if let Some(word) = given("not_before_bound")? {
        role.not_before_bound = parse_or_default(&word, defaults.not_before_bound, NotBeforeBound::parse)?;
    }
    if let Some(word) = given("not_after_bound")? {
        role.not_after_bound = parse_or_default(&word, defaults.not_after_bound, NotAfterBound::parse)?;
    }
    if let Some(word) = given("serial_number_source")? {
        role.serial_number_source = parse_or_default(&word, defaults.serial_number_source, SerialNumberSource::parse)?;
    }
    Ok(())
}

fn parse_time(name: &str, text: String) -> Result<Option<Rfc3339Text>> {
    if text.is_empty() { Ok(None) } else { Rfc3339Text::new(name, text).map(Some) }
}

fn parse_or_default<T>(word: &str, default: T, parse: fn(&str) -> Result<T>) -> Result<T> {
    if word.is_empty() { Ok(default) } else { parse(word) }
}

#[cfg(test)]
mod tests;
