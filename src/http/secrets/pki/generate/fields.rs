//! Parses requests to generate roots, CSRs of intermediates, and keys.

use crate::auth::policy::lower;
use crate::error::{Error, Result};
use crate::fields::{Fields, MAX_NAME_LEN};
use crate::http::secrets::pki::request_fields::{self, flag};
use crate::http::secrets::route::concat_fields;
use crate::keys::signing::ManagedKeyRef;
use crate::pki::ca::intermediate::CsrRequest;
use crate::pki::ca::key::{KeyOrigin, KeyRequest};
use crate::pki::ca::root::{DefaultIssuerName, RootRequest};

/// Fields of `root/generate/:type`.
pub(in crate::http::secrets::pki) const ROOT_FIELDS: &[&str] = &concat_fields::<42>(&[
    &[
        "issuer_name",
        "key_name",
        "key_ref",
        "managed_key_name",
        "managed_key_id",
        "ttl",
        "not_after",
        "not_before",
        "not_before_duration",
        "format",
        "private_key_format",
        "key_type",
        "key_bits",
        "signature_bits",
        "use_pss",
        "max_path_length",
        "key_usage",
        "ext_key_usage",
        "ext_key_usage_oids",
    ],
    &request_fields::NAME_FIELDS,
    &request_fields::CONSTRAINT_FIELDS,
    &request_fields::SUBJECT_FIELDS,
]);

/// Fields of `intermediate/generate/:type`.
pub(in crate::http::secrets::pki) const INTERMEDIATE_FIELDS: &[&str] = &concat_fields::<27>(&[
    &[
        "key_name",
        "key_ref",
        "managed_key_name",
        "managed_key_id",
        "format",
        "private_key_format",
        "key_type",
        "key_bits",
        "signature_bits",
        "use_pss",
        "add_basic_constraints",
        "key_usage",
    ],
    &request_fields::NAME_FIELDS,
    &request_fields::SUBJECT_FIELDS,
]);

/// Fields of `keys/generate/:type`.
pub(in crate::http::secrets::pki) const KEY_FIELDS: &[&str] =
    &["key_name", "key_type", "key_bits", "managed_key_name", "managed_key_id"];

pub(super) fn root(fields: &Fields, origin: KeyOrigin, naming: DefaultIssuerName) -> Result<RootRequest> {
    Ok(RootRequest {
        key: key(fields, origin)?,
        issuer_name: fields.text("issuer_name")?.unwrap_or_default(),
        naming,
        validity: request_fields::validity_of_root(fields)?,
        names: request_fields::names(fields)?,
        signature: request_fields::signature(fields)?,
        subject: request_fields::subject(fields)?,
        not_before_duration: fields.duration("not_before_duration")?,
        max_path_length: request_fields::max_path_length(fields)?,
        usages: request_fields::usages(fields)?,
        constraints: request_fields::constraints(fields)?,
    })
}

pub(super) fn intermediate(fields: &Fields, origin: KeyOrigin) -> Result<CsrRequest> {
    Ok(CsrRequest {
        key: key(fields, origin)?,
        names: request_fields::names(fields)?,
        signature: request_fields::signature(fields)?,
        subject: request_fields::subject(fields)?,
        key_usage: request_fields::key_usage(fields)?,
        add_basic_constraints: flag(fields, "add_basic_constraints")?,
    })
}

/// Rejects fields that select a key of another origin than `:type`: the selected key would not be used.
pub(super) fn refuse_other_origins(fields: &Fields, origin_type: &str) -> Result<()> {
    for (field, belongs_to) in [("managed_key_name", "kms"), ("managed_key_id", "kms"), ("key_ref", "existing")] {
        let is_given = fields.value(field).is_some_and(|value| value.as_str() != Some(""));
        if is_given && origin_type != belongs_to {
            return Err(Error::invalid(format!(
                "{field}: selects a key on paths of the type {belongs_to}, and this path has the type {origin_type}"
            )));
        }
    }
    Ok(())
}

/// Reads the managed key of a path with the type `kms`: its name, in any letter case, or its UUID.
pub(super) fn managed_key(fields: &Fields) -> Result<ManagedKeyRef> {
    let given = |name: &str| -> Result<Option<String>> {
        Ok(fields.text_within(name, MAX_NAME_LEN)?.filter(|text| !text.is_empty()))
    };
    match (given("managed_key_name")?, given("managed_key_id")?) {
        (Some(name), None) => Ok(ManagedKeyRef::Name(lower(&name).into_owned())),
        (None, Some(uuid)) => Ok(ManagedKeyRef::Uuid(uuid)),
        (None, None) => Err(Error::invalid("missing argument managed_key_name or managed_key_id")),
        (Some(_), Some(_)) => {
            Err(Error::invalid("only one argument of managed_key_name or managed_key_id should be specified"))
        }
    }
}

pub(super) fn key(fields: &Fields, origin: KeyOrigin) -> Result<KeyRequest> {
    let name = fields.text("key_name")?.unwrap_or_default();
    let key = request_fields::key(fields)?;
    let key_ref = if origin == KeyOrigin::Existing { fields.text("key_ref")? } else { None };
    Ok(KeyRequest { origin, name, key, key_ref })
}
