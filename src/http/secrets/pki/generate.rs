//! Generates roots, CSRs for intermediates, and keys. The `:type` in the path selects where the key comes from: a new
//! key, an existing key of the mount, or a managed key.

use super::rendering::{self, CertificateRendering};
use super::request_fields::{self, flag};
use crate::auth::policy::lower;
use crate::error::{Error, Kind, Result};
use crate::fields::{Fields, MAX_NAME_LEN};
use crate::http::secrets::dialect::CertificateDates;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::json_object::JsonObjectBuilder;
use crate::http::secrets::route::{Call, concat_fields};
use crate::keys::signing::ManagedKeyRef;
use crate::pki::ca::intermediate::{self, CsrRequest, GeneratedCsr};
use crate::pki::ca::key::{self, KeyOrigin, KeyRequest};
use crate::pki::ca::root::{self, DefaultIssuerName, GeneratedRoot, RootRequest};
use crate::secret::PartlySecret;

/// Fields of `root/generate/:type`.
pub(super) const ROOT_FIELDS: &[&str] = &concat_fields::<42>(&[
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
pub(super) const INTERMEDIATE_FIELDS: &[&str] = &concat_fields::<27>(&[
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
pub(super) const KEY_FIELDS: &[&str] = &["key_name", "key_type", "key_bits", "managed_key_name", "managed_key_id"];

fn key_origin(call: &Call) -> Result<KeyOrigin> {
    let origin_type = call.param("type");
    reject_fields_of_other_key_origins(&call.fields, origin_type)?;
    match origin_type {
        "internal" => Ok(KeyOrigin::Internal),
        "exported" => Ok(KeyOrigin::Exported),
        "existing" => Ok(KeyOrigin::Existing),
        "kms" => Ok(KeyOrigin::Managed(read_managed_key_ref(&call.fields)?)),
        _ => Err(Error::new(Kind::NotFound, "unsupported path")),
    }
}

/// Generates a root and its issuer. On `root/rotate/:type` the issuer is named `next` by default, if that name is not
/// in use.
pub(super) async fn root(call: Call) -> Result<HandlerResponse> {
    let is_rotation = call.route.pattern.starts_with("root/rotate/");
    let naming = if is_rotation { DefaultIssuerName::NextIfFree } else { DefaultIssuerName::Unnamed };
    let origin = key_origin(&call)?;
    let authority = call.authority().await?;
    let request = root_request(&call.fields, origin, naming)?;
    let rendering = CertificateRendering::of(&call.fields)?;
    let limits = super::issuing::mount_lifetimes(&call);
    let generated = root::generate(&authority, request, limits, call.requester_record()).await?;
    let GeneratedRoot { not_after: expiration, renew_after, .. } = generated;
    let dates = CertificateDates { not_before: None, expiration, renew_after };
    let data = call.dialect.with_dates(root_data(&generated, &rendering)?, dates);
    Ok(HandlerResponse::rendered(data).with_warnings(generated.warnings))
}

fn root_data(root: &GeneratedRoot, rendering: &CertificateRendering) -> Result<PartlySecret> {
    let mut data = JsonObjectBuilder::default();
    rendering::add_der(&mut data, "certificate", ("CERTIFICATE", &root.der), &root.key, rendering.format)?;
    data.add("issuing_ca", &rendering.format.encode("CERTIFICATE", &root.der));
    data.add("serial_number", &root.serial.to_string());
    data.add("issuer_id", &root.issuer_id);
    data.add("issuer_name", &root.issuer_name);
    rendering::add_key(&mut data, &root.key, rendering)?;
    Ok(data.finish())
}

pub(super) async fn intermediate(call: Call) -> Result<HandlerResponse> {
    let origin = key_origin(&call)?;
    generate_csr(call, origin).await
}

/// As [`intermediate()`], for a key that the mount already has.
pub(super) async fn cross_sign(call: Call) -> Result<HandlerResponse> {
    reject_fields_of_other_key_origins(&call.fields, "existing")?;
    generate_csr(call, KeyOrigin::Existing).await
}

async fn generate_csr(call: Call, origin: KeyOrigin) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let request = csr_request(&call.fields, origin)?;
    let rendering = CertificateRendering::of(&call.fields)?;
    let generated = intermediate::generate(&authority, request).await?;
    Ok(HandlerResponse::rendered(csr_data(&generated, &rendering)?).with_warnings(generated.warnings))
}

fn csr_data(csr: &GeneratedCsr, rendering: &CertificateRendering) -> Result<PartlySecret> {
    let mut data = JsonObjectBuilder::default();
    rendering::add_der(&mut data, "csr", ("CERTIFICATE REQUEST", &csr.der), &csr.key, rendering.format)?;
    rendering::add_key(&mut data, &csr.key, rendering)?;
    Ok(data.finish())
}

pub(super) async fn key(call: Call) -> Result<HandlerResponse> {
    let origin = key_origin(&call)?;
    if origin == KeyOrigin::Existing {
        return Err(Error::new(Kind::NotFound, "unsupported path"));
    }
    let authority = call.authority().await?;
    let (key, warnings) = key::generate(&authority, key_request(&call.fields, origin)?).await?;
    let mut data = JsonObjectBuilder::default();
    data.add("key_type", key.kind.name());
    rendering::add_key(&mut data, &key, &CertificateRendering::default())?;
    Ok(HandlerResponse::rendered(data.finish()).with_warnings(warnings))
}

fn root_request(fields: &Fields, origin: KeyOrigin, naming: DefaultIssuerName) -> Result<RootRequest> {
    Ok(RootRequest {
        key: key_request(fields, origin)?,
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

fn csr_request(fields: &Fields, origin: KeyOrigin) -> Result<CsrRequest> {
    Ok(CsrRequest {
        key: key_request(fields, origin)?,
        names: request_fields::names(fields)?,
        signature: request_fields::signature(fields)?,
        subject: request_fields::subject(fields)?,
        key_usage: request_fields::key_usage(fields)?,
        add_basic_constraints: flag(fields, "add_basic_constraints")?,
    })
}

/// Rejects fields that select a key of another origin than the `:type` of the path, because that key would not be used.
fn reject_fields_of_other_key_origins(fields: &Fields, origin_type: &str) -> Result<()> {
    for (field, belongs_to) in [("managed_key_name", "kms"), ("managed_key_id", "kms"), ("key_ref", "existing")] {
        let is_given = fields.value(field).is_some_and(|value| value.as_str() != Some(""));
        if is_given && origin_type != belongs_to {
            return Err(Error::invalid(format!(
                "{field}: is allowed only on paths of type {belongs_to}; this path has type {origin_type}"
            )));
        }
    }
    Ok(())
}

/// Reads the reference to the managed key on a path of type `kms`: its name, in any letter case, or its UUID.
fn read_managed_key_ref(fields: &Fields) -> Result<ManagedKeyRef> {
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

fn key_request(fields: &Fields, origin: KeyOrigin) -> Result<KeyRequest> {
    let name = fields.text("key_name")?.unwrap_or_default();
    let key = request_fields::key(fields)?;
    let key_ref = if origin == KeyOrigin::Existing { fields.text("key_ref")? } else { None };
    Ok(KeyRequest { origin, name, key, key_ref })
}
