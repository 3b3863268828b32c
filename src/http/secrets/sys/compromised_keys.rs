//! The list of compromised keys (`sys/compromised-keys`): list, read, add, remove.

use serde_json::json;

use super::super::handler_response::HandlerResponse;
use super::super::page::PageParams;
use super::super::route::Call;
use super::run_detached;
use crate::clock::{Time, format_rfc3339};
use crate::error::{Error, Result};
use crate::pki::compromised::{KeyHash, MAX_COMPROMISED_KEYS};
use crate::rationing::cpu;
use crate::x509::certificate::Certificate;
use crate::x509::csr::Csr;
use crate::x509::pem;
use crate::x509::public_key::PublicKey;

pub(super) const ADD_FIELDS: &[&str] = &["public_key", "note"];
pub(super) const ADD_HASH_FIELDS: &[&str] = &["note"];
/// Maximum length of the note on a key, in bytes.
const MAX_NOTE_BYTES: usize = 512;

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let page = PageParams::of(&call.fields)?;
    let hashes = call.state.engine.compromised().hashes();
    let keys = cpu::run(move || {
        let from = hashes.partition_point(|hash| hash.text() <= page.after);
        hashes[from..].iter().take(page.limit.unwrap_or(usize::MAX)).map(KeyHash::text).collect()
    });
    HandlerResponse::keys(keys.await?, None)
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let hash = KeyHash::parse(call.param("hash"))?;
    let listed = call.state.engine.compromised().get(&hash).ok_or_else(Error::not_found)?;
    let added = Time::from_unix_timestamp(listed.added_at).map_err(Error::internal)?;
    Ok(HandlerResponse::data(json!({
        "hash": hash.text(),
        "added_time": format_rfc3339(added),
        "source": listed.source,
        "note": listed.note,
    })))
}

/// `POST sys/compromised-keys`: adds the public key in the body to the list.
pub(super) async fn add(call: Call) -> Result<HandlerResponse> {
    let text = call.fields.text("public_key")?.unwrap_or_default();
    let hash = KeyHash::of(&parse_public_key(&text)?);
    add_to_list(call, hash).await
}

/// `POST sys/compromised-keys/:hash`: adds a key to the list by its hash.
pub(super) async fn add_hash(call: Call) -> Result<HandlerResponse> {
    let hash = KeyHash::parse(call.param("hash"))?;
    add_to_list(call, hash).await
}

async fn add_to_list(call: Call, hash: KeyHash) -> Result<HandlerResponse> {
    let note = call.fields.text("note")?.unwrap_or_default();
    if note.len() > MAX_NOTE_BYTES || note.contains(char::is_control) {
        return Err(Error::invalid(format!("note: must be at most {MAX_NOTE_BYTES} bytes without control characters")));
    }
    run_detached(async move {
        if !call.state.engine.compromised().add(hash, "operator", note).await? {
            return Err(Error::invalid(format!(
                "compromised keys: the list is full (at most {MAX_COMPROMISED_KEYS} keys); remove keys first"
            )));
        }
        Ok(HandlerResponse::data(json!({ "hash": hash.text() })))
    })
    .await
}

/// `DELETE sys/compromised-keys/:hash`; also succeeds if the key is not listed.
pub(super) async fn remove(call: Call) -> Result<HandlerResponse> {
    let hash = KeyHash::parse(call.param("hash"))?;
    run_detached(async move { call.state.engine.compromised().remove(hash).await.map(drop) }).await
}

/// Returns the public key in the first PEM block of `text`: a public key, a certificate or a certificate request.
fn parse_public_key(text: &str) -> Result<PublicKey> {
    let wrong = |why: &str| Error::invalid(format!("public_key: {why}"));
    if text.len() > pem::MAX_TEXT_BYTES {
        return Err(wrong("longer than 64 KiB"));
    }
    let block = pem::parse_first_block(text).map_err(|error| wrong(error.text()))?;
    let (label, der) =
        block.ok_or_else(|| wrong("must be a PEM block PUBLIC KEY, CERTIFICATE or CERTIFICATE REQUEST"))?;
    let key = match label.as_str() {
        "PUBLIC KEY" => PublicKey::parse(&der),
        "CERTIFICATE" => Certificate::parse(&der).map(|certificate| certificate.key().clone()),
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => Csr::from_der(&der).map(|csr| csr.key),
        _ => return Err(wrong("must be a PEM block PUBLIC KEY, CERTIFICATE or CERTIFICATE REQUEST")),
    };
    key.map_err(|error| error.within("public_key"))
}
