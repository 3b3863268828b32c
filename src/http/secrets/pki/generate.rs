//! Generates roots, CSRs of intermediates, and keys. The `:type` in the path selects the origin of the key.

pub(super) mod fields;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::rendering::{self, Format, Rendering};
use crate::error::{Error, Kind, Result};
use crate::http::secrets::dialect::Dates;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::json_object::JsonObjectBuilder;
use crate::http::secrets::route::Call;
use crate::pki::ca::intermediate::{self, GeneratedCsr};
use crate::pki::ca::key::{self, KeyOrigin};
use crate::pki::ca::root::{self, DefaultIssuerName, GeneratedRoot};
use crate::secret::PartlySecret;
use crate::x509::pem;

fn origin(call: &Call) -> Result<KeyOrigin> {
    let origin_type = call.param("type");
    fields::refuse_other_origins(&call.fields, origin_type)?;
    match origin_type {
        "internal" => Ok(KeyOrigin::Internal),
        "exported" => Ok(KeyOrigin::Exported),
        "existing" => Ok(KeyOrigin::Existing),
        "kms" => Ok(KeyOrigin::Managed(fields::managed_key(&call.fields)?)),
        _ => Err(Error::new(Kind::NotFound, "unsupported path")),
    }
}

/// Generates a root. For `root/rotate/:type` the default issuer name is `next`, if it is not in use.
pub(super) async fn root(call: Call) -> Result<HandlerResponse> {
    let is_rotation = call.route.pattern.starts_with("root/rotate/");
    let naming = if is_rotation { DefaultIssuerName::NextIfFree } else { DefaultIssuerName::Unnamed };
    let origin = origin(&call)?;
    let authority = call.authority().await?;
    let request = fields::root(&call.fields, origin, naming)?;
    let rendering = Rendering::of(&call.fields)?;
    let limits = super::issuing::limits(&call);
    let generated = root::generate(&authority, request, limits, call.recorded_as()).await?;
    let GeneratedRoot { not_after: expiration, renew_after, .. } = generated;
    let dates = Dates { not_before: None, expiration, renew_after };
    let data = call.dialect.with_dates(root_data(&generated, &rendering)?, dates);
    Ok(HandlerResponse::rendered(data).with_warnings(generated.warnings))
}

fn root_data(root: &GeneratedRoot, rendering: &Rendering) -> Result<PartlySecret> {
    let text = match rendering.format {
        Format::Der => STANDARD.encode(&root.der),
        Format::Pem | Format::PemBundle | Format::Pkcs12 => pem::encode("CERTIFICATE", &root.der),
    };
    let mut data = JsonObjectBuilder::default();
    match (rendering.format, &root.key.exported) {
        (Format::PemBundle, Some(key)) => data.add_secret("certificate", &rendering::pem_bundle(key, &text)?)?,
        _ => data.add("certificate", &text),
    }
    data.add("issuing_ca", &text);
    data.add("serial_number", &root.serial.to_string());
    data.add("issuer_id", &root.issuer_id);
    data.add("issuer_name", &root.issuer_name);
    rendering::add_key(&mut data, &root.key, rendering)?;
    Ok(data.finish())
}

pub(super) async fn intermediate(call: Call) -> Result<HandlerResponse> {
    let origin = origin(&call)?;
    new_intermediate(call, origin).await
}

/// As [`intermediate()`], for an existing key of the mount.
pub(super) async fn cross_sign(call: Call) -> Result<HandlerResponse> {
    fields::refuse_other_origins(&call.fields, "existing")?;
    new_intermediate(call, KeyOrigin::Existing).await
}

async fn new_intermediate(call: Call, origin: KeyOrigin) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let request = fields::intermediate(&call.fields, origin)?;
    let rendering = Rendering::of(&call.fields)?;
    let generated = intermediate::generate(&authority, request).await?;
    Ok(HandlerResponse::rendered(csr_data(&generated, &rendering)?).with_warnings(generated.warnings))
}

fn csr_data(csr: &GeneratedCsr, rendering: &Rendering) -> Result<PartlySecret> {
    let text = || pem::encode("CERTIFICATE REQUEST", &csr.der);
    let mut data = JsonObjectBuilder::default();
    match (rendering.format, &csr.key.exported) {
        (Format::Der, _) => data.add("csr", &STANDARD.encode(&csr.der)),
        (Format::PemBundle, Some(private)) => data.add_secret("csr", &rendering::pem_bundle(private, &text())?)?,
        (Format::Pem | Format::PemBundle | Format::Pkcs12, _) => data.add("csr", &text()),
    }
    rendering::add_key(&mut data, &csr.key, rendering)?;
    Ok(data.finish())
}

pub(super) async fn key(call: Call) -> Result<HandlerResponse> {
    let origin = origin(&call)?;
    if origin == KeyOrigin::Existing {
        return Err(Error::new(Kind::NotFound, "unsupported path"));
    }
    let authority = call.authority().await?;
    let (key, warnings) = key::generate(&authority, fields::key(&call.fields, origin)?).await?;
    let mut data = JsonObjectBuilder::default();
    data.add("key_type", key.kind.name());
    rendering::add_key(&mut data, &key, &Rendering::default())?;
    Ok(HandlerResponse::rendered(data.finish()).with_warnings(warnings))
}
