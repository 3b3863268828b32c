//! Parses and renders the members of a role.
//!
//! Absent members come from a base: the defaults for a write, the stored role for a patch. `null` sets the default in
//! both.

use serde_json::{Map, Value, json};

use super::policies;
use crate::error::{Error, Result};
use crate::fields::{Fields, ListLimit, MAX_NAME_LEN};
use crate::http::secrets::dialect::Dialect;
use crate::pki::mount::role::{
    NotAfterBound, NotBeforeBound, ROLE_LISTS, Role, RoleKeys, SerialNumberSource, SignatureBits,
};
use crate::pki::values::original_text::Rfc3339Text;
use crate::pki::values::{check_ext_key_usage, check_key_usage, whole_seconds};

/// Fields of a role write.
pub(crate) const FIELDS: &[&str] = &[
    "issuer_ref",
    "ttl",
    "max_ttl",
    "allow_localhost",
    "allowed_domains",
    "allowed_domains_template",
    "allow_globs_in_identity_templates",
    "allow_bare_domains",
    "allow_subdomains",
    "allow_glob_domains",
    "allow_wildcard_certificates",
    "allow_any_name",
    "enforce_hostnames",
    "allow_ip_sans",
    "allowed_ip_sans_cidr",
    "allowed_uri_sans",
    "allowed_uri_sans_template",
    "allowed_other_sans",
    "allowed_serial_numbers",
    "allowed_user_ids",
    "allow_token_displayname",
    "server_flag",
    "client_flag",
    "code_signing_flag",
    "email_protection_flag",
    "key_type",
    "key_bits",
    "signature_bits",
    "use_pss",
    "key_usage",
    "ext_key_usage",
    "ext_key_usage_oids",
    "use_csr_common_name",
    "use_csr_sans",
    "ou",
    "organization",
    "country",
    "locality",
    "province",
    "street_address",
    "postal_code",
    "strict_subject",
    "separate_rdns",
    "require_cn",
    "cn_validations",
    "policy_identifiers",
    "basic_constraints_valid_for_non_ca",
    "not_before_duration",
    "not_before",
    "not_before_bound",
    "not_after",
    "not_after_bound",
    "generate_lease",
    "no_store",
    "no_store_metadata",
    "serial_number_source",
];

/// The list that allows all values when it is empty.
const UNLIMITED_IF_EMPTY: &str = "allowed_ip_sans_cidr";

type Slots<T> = &'static [(&'static str, fn(&mut Role) -> &mut T)];

const FLAG_SLOTS: Slots<bool> = &[
    ("allow_localhost", |r| &mut r.allow_localhost),
    ("allowed_domains_template", |r| &mut r.allowed_domains_template),
    ("allow_globs_in_identity_templates", |r| &mut r.allow_globs_in_identity_templates),
    ("allow_bare_domains", |r| &mut r.allow_bare_domains),
    ("allow_subdomains", |r| &mut r.allow_subdomains),
    ("allow_glob_domains", |r| &mut r.allow_glob_domains),
    ("allow_wildcard_certificates", |r| &mut r.allow_wildcard_certificates),
    ("allow_any_name", |r| &mut r.allow_any_name),
    ("enforce_hostnames", |r| &mut r.enforce_hostnames),
    ("allow_ip_sans", |r| &mut r.allow_ip_sans),
    ("allowed_uri_sans_template", |r| &mut r.allowed_uri_sans_template),
    ("allow_token_displayname", |r| &mut r.allow_token_displayname),
    ("server_flag", |r| &mut r.server_flag),
    ("client_flag", |r| &mut r.client_flag),
    ("code_signing_flag", |r| &mut r.code_signing_flag),
    ("email_protection_flag", |r| &mut r.email_protection_flag),
    ("use_pss", |r| &mut r.use_pss),
    ("use_csr_common_name", |r| &mut r.use_csr_common_name),
    ("use_csr_sans", |r| &mut r.use_csr_sans),
    ("strict_subject", |r| &mut r.strict_subject),
    ("separate_rdns", |r| &mut r.separate_rdns),
    ("require_cn", |r| &mut r.require_cn),
    ("basic_constraints_valid_for_non_ca", |r| &mut r.basic_constraints_valid_for_non_ca),
    ("generate_lease", |r| &mut r.generate_lease),
    ("no_store", |r| &mut r.no_store),
    ("no_store_metadata", |r| &mut r.no_store_metadata),
];

const DURATION_SLOTS: Slots<u64> = &[
    ("ttl", |r| &mut r.ttl),
    ("max_ttl", |r| &mut r.max_ttl),
    ("not_before_duration", |r| &mut r.not_before_duration),
];

/// Renders a role. Lists are arrays, and durations whole seconds, except for the two that depend on the dialect.
pub(crate) fn role_json(role: &Role, dialect: Dialect) -> Value {
    let mut members = Map::new();
    // The slots need a mutable reference.
    let mut own = role.clone();
    members.extend(FLAG_SLOTS.iter().map(|(name, slot)| ((*name).to_owned(), json!(*slot(&mut own)))));
    members.extend(ROLE_LISTS.iter().map(|list| (list.field.to_owned(), json!((list.of)(role)))));
    let time = |time: &Option<Rfc3339Text>| json!(time.as_ref().map_or("", Rfc3339Text::as_str));
    let others = [
        ("issuer_ref", json!(role.issuer_ref)),
        ("key_type", json!(role.keys.key_type())),
        ("key_bits", json!(role.keys.bits().max(role.unused_key_bits))),
        ("signature_bits", json!(role.signature_bits.bits())),
        ("policy_identifiers", policies::to_json(&role.policy_identifiers)),
        ("ttl", dialect.lifetime(role.ttl)),
        ("max_ttl", dialect.lifetime(role.max_ttl)),
        ("not_before_duration", json!(role.not_before_duration)),
        ("not_before", time(&role.not_before)),
        ("not_before_bound", json!(role.not_before_bound.as_str())),
        ("not_after", time(&role.not_after)),
        ("not_after_bound", json!(role.not_after_bound.as_str())),
        ("serial_number_source", json!(role.serial_number_source.as_str())),
    ];
    members.extend(others.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(members)
}

/// Reads a role from a write, or from a patch with the stored role as `base`. Rules between members are checked by the
/// role itself.
///
/// # Errors
/// `Invalid` with the field and the broken rule.
pub(crate) fn read(fields: &Fields, base: Option<&Role>) -> Result<Role> {
    let mut reader = RoleReader { fields, role: base.cloned().unwrap_or_default(), blank: Role::default() };
    reader.read(FLAG_SLOTS, |name| fields.bool(name))?;
    for list in ROLE_LISTS {
        let cap = ListLimit::new(list.limits.entries, list.limits.bytes);
        let cap = if list.field == UNLIMITED_IF_EMPTY { cap.rejecting_only_empty() } else { cap };
        reader.take(list.field, list.of_mut, fields.list_within(list.field, cap)?);
    }
    let mut words = RoleTexts::read(fields)?;
    reader.read(DURATION_SLOTS, |name| fields.duration(name)?.map(|d| whole_seconds(name, d)).transpose())?;
    let number = |name| fields.int(name)?.map(|n| parse_size(name, n)).transpose();
    let key_bits = number("key_bits")?;
    let signature_bits = number("signature_bits")?;
    reader.take("policy_identifiers", |r| &mut r.policy_identifiers, policies::read(fields)?);
    reader.take("issuer_ref", |r| &mut r.issuer_ref, words.issuer_ref.take());
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
    // If several rules are broken, the first error in this order is returned.
    role.check_limits()?;
    let key_type = words.key_type.as_deref().or(unless_null("key_type").map(|base| base.keys.key_type()));
    let bits = key_bits.or(unless_null("key_bits").map(|base| base.keys.bits()));
    role.keys = RoleKeys::new(key_type.unwrap_or("rsa"), bits.unwrap_or(0))?;
    let unused = key_bits.or(unless_null("key_bits").map(|base| base.unused_key_bits));
    role.unused_key_bits = unused.filter(|_| role.keys.bits() == 0).unwrap_or(0);
    let of_base = unless_null("signature_bits").map(|base| base.signature_bits);
    role.signature_bits = signature_bits.map(SignatureBits::new).transpose()?.or(of_base).unwrap_or_default();
    role.normalize_lists()?;
    words.bound(fields, &mut role)?;
    Ok(role)
}

fn parse_size(field: &str, number: i64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::invalid(format!("{field}: unsupported size")))
}

struct RoleReader<'a> {
    fields: &'a Fields,
    role: Role,
    blank: Role,
}

impl RoleReader<'_> {
    fn read<T: Clone>(&mut self, slots: Slots<T>, value: impl Fn(&str) -> Result<Option<T>>) -> Result<()> {
        for (name, slot) in slots {
            self.take(name, *slot, value(name)?);
        }
        Ok(())
    }

    fn take<T: Clone>(&mut self, name: &str, slot: fn(&mut Role) -> &mut T, given: Option<T>) {
        if let Some(value) = given {
            *slot(&mut self.role) = value;
        } else if self.fields.is_null(name) {
            *slot(&mut self.role) = slot(&mut self.blank).clone();
        }
    }
}

/// Trimmed text members of a body.
struct RoleTexts {
    issuer_ref: Option<String>,
    key_type: Option<String>,
    not_before: Option<String>,
    not_before_bound: Option<String>,
    not_after: Option<String>,
    not_after_bound: Option<String>,
    serial_number_source: Option<String>,
}

impl RoleTexts {
    fn read(fields: &Fields) -> Result<Self> {
        let word =
            |name| -> Result<_> { Ok(fields.text_within(name, MAX_NAME_LEN)?.map(|text| text.trim().to_owned())) };
        Ok(Self {
            issuer_ref: word("issuer_ref")?,
            key_type: word("key_type")?,
            not_before: word("not_before")?,
            not_before_bound: word("not_before_bound")?,
            not_after: word("not_after")?,
            not_after_bound: word("not_after_bound")?,
            serial_number_source: word("serial_number_source")?,
        })
    }

    /// Sets the bounds of dates and the source of serial numbers. Empty text sets the default, like `null`.
    fn bound(self, fields: &Fields, role: &mut Role) -> Result<()> {
        let blank = Role::default();
        let given = |name: &str, word: Option<String>| word.or_else(|| fields.is_null(name).then(String::new));
        if let Some(text) = given("not_before", self.not_before) {
            role.not_before = parse_time("not_before", text)?;
        }
        if let Some(text) = given("not_after", self.not_after) {
            role.not_after = parse_time("not_after", text)?;
        }
        if let Some(word) = given("not_before_bound", self.not_before_bound) {
            role.not_before_bound = parse_or_default(&word, blank.not_before_bound, NotBeforeBound::parse)?;
        }
        if let Some(word) = given("not_after_bound", self.not_after_bound) {
            role.not_after_bound = parse_or_default(&word, blank.not_after_bound, NotAfterBound::parse)?;
        }
        if let Some(word) = given("serial_number_source", self.serial_number_source) {
            role.serial_number_source = parse_or_default(&word, blank.serial_number_source, SerialNumberSource::parse)?;
        }
        Ok(())
    }
}

fn parse_time(name: &str, text: String) -> Result<Option<Rfc3339Text>> {
    if text.is_empty() { Ok(None) } else { Rfc3339Text::new(name, text).map(Some) }
}

fn parse_or_default<T>(word: &str, default: T, parse: fn(&str) -> Result<T>) -> Result<T> {
    if word.is_empty() { Ok(default) } else { parse(word) }
}

#[cfg(test)]
mod tests;
