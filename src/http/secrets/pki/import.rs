//! Imports: `intermediate/set-signed`, `issuers/import/…`, `config/ca`, `keys/import`, and CRLs.
//!
//! Certificates and keys are PEM (`pem_bundle`), or a PKCS #12 file (`p12`) with its `password`. A CRL may have many
//! megabytes: it is the whole body (DER or PEM) or the JSON member `crl`, and is parsed in the CPU queue.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::pki::rendering::PASSWORD_FIELD;
use crate::http::secrets::route::Call;
use crate::pki::ca::import::{self, BundleImportOptions, InvalidCrlHandling, PrivateKeyAcceptance};
use crate::pki::revocation::crl_import::{self, ImportedCrl};
use crate::rationing::cpu;
use crate::secret::Secret;
use crate::x509::foreign_crl::ForeignCrl;
use crate::x509::pem;
use crate::x509::pkcs12::{self, Pkcs12Contents};

/// Maximum size of a request body with a CRL, in bytes: enough for two million entries in JSON.
pub(super) const MAX_CRL_BODY_BYTES: usize = 96 << 20;

/// Field that contains a PKCS #12 file in base64.
const P12_FIELD: &str = "p12";
/// Flag to skip invalid CRLs instead of rejecting the import.
const WITHOUT_REFUSED_CRLS_FIELD: &str = "without_refused_crls";
/// Fields of imports from `pem_bundle` or `p12`.
pub(super) const BUNDLE_FIELDS: &[&str] = &["pem_bundle", P12_FIELD, PASSWORD_FIELD, WITHOUT_REFUSED_CRLS_FIELD];
/// Fields of `keys/import`.
pub(super) const KEY_FIELDS: &[&str] = &["pem_bundle", P12_FIELD, PASSWORD_FIELD, "key_name"];
/// Fields of `intermediate/set-signed`.
pub(super) const SET_SIGNED_FIELDS: &[&str] = &["certificate", WITHOUT_REFUSED_CRLS_FIELD];

pub(super) async fn bundle(call: Call) -> Result<HandlerResponse> {
    import_bundle(call, PrivateKeyAcceptance::Allowed).await
}

/// Imports certificates. A private key in the request is an error.
pub(super) async fn certificates(call: Call) -> Result<HandlerResponse> {
    import_bundle(call, PrivateKeyAcceptance::Refused).await
}

/// Imports a certificate that another CA issued for a CSR of this mount, and its CA certificates. The mount already has
/// the private key.
pub(super) async fn set_signed(mut call: Call) -> Result<HandlerResponse> {
    let text = take_required("certificate", &mut call.fields)?;
    import(call, "certificate", text, PrivateKeyAcceptance::Refused).await
}

async fn import_bundle(mut call: Call, private_keys: PrivateKeyAcceptance) -> Result<HandlerResponse> {
    match take_p12(&mut call.fields).await? {
        Some(contents) => import(call, P12_FIELD, Secret::new(contents.to_pem().as_slice()), private_keys).await,
        None => {
            let text = take_required("pem_bundle", &mut call.fields)?;
            import(call, "pem_bundle", text, private_keys).await
        }
    }
}

async fn import(
    call: Call,
    field: &'static str,
    text: Secret,
    private_keys: PrivateKeyAcceptance,
) -> Result<HandlerResponse> {
    let skips = call.fields.bool(WITHOUT_REFUSED_CRLS_FIELD)?.unwrap_or(false);
    let invalid_crls = if skips { InvalidCrlHandling::Skip } else { InvalidCrlHandling::RefuseAll };
    let options = BundleImportOptions { private_keys, invalid_crls };
    let imported = import::import_pem_bundle(&call.authority().await?, field, text, options).await?;
    let mut data = json!({
        "imported_issuers": imported.imported_issuers,
        "imported_keys": imported.imported_keys,
        "existing_issuers": imported.existing_issuers,
        "existing_keys": imported.existing_keys,
        "mapping": imported.mapping,
    });
    if !imported.imported_crls.is_empty() {
        data["imported_crls"] = imported.imported_crls.iter().map(imported_crl_json).collect();
    }
    Ok(HandlerResponse::data(data).with_warnings(imported.warnings))
}

pub(super) async fn key(mut call: Call) -> Result<HandlerResponse> {
    let (field, text) = match take_p12(&mut call.fields).await? {
        // Certificates in the PKCS #12 file are ignored.
        Some(contents) => {
            let keys = Pkcs12Contents { private_keys: contents.private_keys, ..Pkcs12Contents::default() };
            (P12_FIELD, Secret::new(keys.to_pem().as_slice()))
        }
        None => ("pem_bundle", take_required("pem_bundle", &mut call.fields)?),
    };
    let authority = call.authority().await?;
    let name = call.fields.text("key_name")?.unwrap_or_default();
    let key = import::import_key(&authority, field, text, name).await?;
    let data = json!({ "key_id": key.id, "key_name": key.name, "key_type": key.kind.name() });
    Ok(HandlerResponse::data(data).with_warnings(key.warnings))
}

/// Imports a CRL that an issuer published elsewhere before this mount imported the issuer.
pub(super) async fn import_crl(mut call: Call) -> Result<HandlerResponse> {
    let body = std::mem::take(&mut call.body);
    let authority = call.authority().await?;
    let read = move || ForeignCrl::read(decode_crl_body(&body)?);
    let list = cpu::run(read).await??;
    let imported = crl_import::import_crl(&authority, list).await?;
    Ok(HandlerResponse::data(imported_crl_json(&imported)).with_warnings(imported.warnings))
}

fn imported_crl_json(list: &ImportedCrl) -> Value {
    json!({
        "issuers": list.issuers,
        "crl_number": list.number,
        "published_crl_number": list.published,
        "entries": list.entries,
        "imported_entries": list.imported,
        "existing_entries": list.entries.saturating_sub(list.imported),
    })
}

fn decode_crl_body(body: &[u8]) -> Result<Vec<u8>> {
    if body.len() > MAX_CRL_BODY_BYTES {
        return Err(Error::invalid(format!("crl: the request is longer than {} MiB", MAX_CRL_BODY_BYTES >> 20)));
    }
    match body.trim_ascii_start().first() {
        None => Err(missing_crl()),
        Some(b'{') => {
            let fields = Fields::parse_within(body, usize::MAX)?;
            decode_crl_text(fields.str("crl")?.filter(|text| !text.is_empty()).ok_or_else(missing_crl)?)
        }
        // A DER SEQUENCE of more than 127 bytes begins with these two bytes. PEM and base64 do not.
        Some(0x30) if body.get(1).is_some_and(|length| *length >= 0x80) => Ok(body.to_vec()),
        Some(_) => decode_crl_text(std::str::from_utf8(body).map_err(|_| malformed_crl())?),
    }
}

fn missing_crl() -> Error {
    Error::invalid("crl: must be given")
}

fn malformed_crl() -> Error {
    Error::invalid("crl: must be one CRL in PEM or DER (in JSON: PEM, or DER in base64)")
}

/// Decodes a CRL in PEM, or in base64 of its DER.
fn decode_crl_text(text: &str) -> Result<Vec<u8>> {
    if !text.contains("-----BEGIN ") {
        let compact: Vec<u8> = text.bytes().filter(|octet| !octet.is_ascii_whitespace()).collect();
        return STANDARD.decode(compact).map_err(|_| malformed_crl());
    }
    let blocks = pem::parse_blocks(text).map_err(|error| Error::invalid(format!("crl: {}", error.text())))?;
    match <[_; 1]>::try_from(blocks) {
        Ok([(label, der)]) if label == pem::CRL_LABEL => Ok(der),
        _ => Err(Error::invalid("crl: must be exactly one PEM block of type X509 CRL")),
    }
}

/// Removes a PKCS #12 file and its password from the fields, and parses the file; `None` if the request has no such
/// file.
async fn take_p12(fields: &mut Fields) -> Result<Option<Pkcs12Contents>> {
    let password = fields.take_secret(PASSWORD_FIELD)?;
    let Some(file) = fields.take_secret(P12_FIELD)? else {
        return match password {
            Some(_) => Err(Error::invalid("password: is allowed only with p12")),
            None => Ok(None),
        };
    };
    if fields.take_secret("pem_bundle")?.is_some() {
        return Err(Error::invalid("p12: must not be given with pem_bundle"));
    }
    let password = password.ok_or_else(|| Error::invalid("password: must be given with p12"))?;
    let read = move || {
        let compact: Vec<u8> = file.expose().iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let file = STANDARD.decode(compact).map_err(|_| Error::invalid("p12: must be base64"))?;
        pkcs12::read(P12_FIELD, &file, password.expose())
    };
    cpu::run(read).await?.map(Some)
}

/// Removes a required secret from the fields, so that it is overwritten in memory even if the request fails.
fn take_required(field: &'static str, fields: &mut Fields) -> Result<Secret> {
    fields.take_secret(field)?.ok_or_else(|| Error::invalid(format!("{field}: must be given")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_crl_list_is_read_in_every_form() {
        let list = [&[0x30, 0x81, 0x80][..], &[7; 128]].concat();
        let pem = pem::encode(pem::CRL_LABEL, &list);
        let base64 = STANDARD.encode(&list);
        let json = |text: &str| json!({ "crl": text }).to_string().into_bytes();
        for body in [list.clone(), pem.clone().into_bytes(), json(&pem), json(&base64), base64.clone().into_bytes()] {
            assert_eq!(decode_crl_body(&body).unwrap(), list);
        }
        let other = pem::encode("CERTIFICATE", &list);
        for body in [
            b"".to_vec(),
            b" \n".to_vec(),
            b"{}".to_vec(),
            json(""),
            json("a path"),
            json(&other),
            json(&pem.repeat(2)),
            b"{\"crl\":7}".to_vec(),
            vec![0xff; 200],
        ] {
            let error = decode_crl_body(&body).unwrap_err();
            assert!(error.text().contains("crl"), "{error}");
        }
        assert!(
            decode_crl_body(&vec![b'A'; MAX_CRL_BODY_BYTES + 1]).unwrap_err().text().contains("longer than 96 MiB")
        );
    }
}
