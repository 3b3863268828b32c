//! Members of a managed key of type `pkcs11`.

use serde_json::{Value, json};

use super::sent::Sent;
use crate::error::Result;
use crate::fields::MAX_NAME;
use crate::keys::pkcs11::{Pkcs11Settings, is_supported_mechanism};
use crate::keys::redacted;

pub(super) const FIELDS: &[&str] = &[
    "library",
    "key_label",
    "key_id",
    "mechanism",
    "pin",
    "slot",
    "token_label",
    "curve",
    "key_bits",
    "force_rw_session",
    "max_parallel",
    "public_key",
];

pub(super) const SECRETS: &[&str] = &["pin"];

/// Maximum length of a key or token label, in bytes.
const LABEL: usize = 255;
/// Maximum length of a key id, in hexadecimal digits.
const ID: usize = 512;
/// Maximum length of a public key, in bytes of PEM.
const PUBLIC_KEY: usize = 4_096;
/// Maximum length of a number or a word, in bytes.
const WORD: usize = 32;

/// Merges a write into the stored settings.
pub(super) fn read(sent: &Sent, stored: Option<&Pkcs11Settings>) -> Result<Pkcs11Settings> {
    let fields = sent.fields();
    let mut settings = stored.cloned().unwrap_or_default();
    sent.text("library", MAX_NAME, &mut settings.library)?;
    sent.text("key_label", LABEL, &mut settings.key_label)?;
    sent.text("key_id", ID, &mut settings.key_id)?;
    sent.text("token_label", LABEL, &mut settings.token_label)?;
    sent.text("public_key", PUBLIC_KEY, &mut settings.public_key)?;
    sent.flag("force_rw_session", &mut settings.force_rw_session)?;
    sent.secret("pin", &mut settings.pin)?;
    if let Some(Value::Number(number)) = fields.value("mechanism") {
        settings.mechanism = Some(Pkcs11Settings::numbered_mechanism(number.as_u64())?);
    } else if let Some(text) = fields.text_within("mechanism", WORD)? {
        settings.mechanism = Some(Pkcs11Settings::parse_mechanism(&text)?);
    }
    if let Some(text) = fields.text_within("slot", WORD)? {
        let slot = Pkcs11Settings::parse_slot(&text)?;
        // Reads show slot 0 for a key whose token is selected by its label, so a write accepts that.
        let is_number = matches!(fields.value("slot"), Some(Value::Number(_)));
        let repeats_label = fields.value("token_label").is_some() && !settings.token_label.is_empty();
        let is_label = slot == Some(0) && is_number && repeats_label;
        settings.slot = slot.filter(|_| !is_label);
    }
    if let Some(text) = fields.text_within("curve", WORD)? {
        settings.curve = Pkcs11Settings::parse_curve(&text)?;
    }
    if let Some(bits) = fields.int("key_bits")? {
        settings.key_bits = Pkcs11Settings::parse_key_bits(bits)?;
    }
    if let Some(count) = fields.int("max_parallel")? {
        settings.max_parallel = Pkcs11Settings::parse_max_parallel(count)?;
    }
    Ok(settings)
}

/// Warns about a mechanism that is accepted and cannot be used.
pub(super) fn warning(settings: &Pkcs11Settings) -> Option<String> {
    let unsupported = settings.mechanism.filter(|number| !is_supported_mechanism(*number));
    unsupported.map(|number| format!("mechanism {number:#06x} is none that this server signs with"))
}

/// Renders the members. Mechanism and slot are numbers; the slot is 0 if the token is selected by its label.
pub(super) fn shown(settings: &Pkcs11Settings) -> Vec<(&'static str, Value)> {
    vec![
        ("library", json!(settings.library)),
        ("key_label", json!(settings.key_label)),
        ("key_id", json!(settings.key_id)),
        ("mechanism", json!(settings.mechanism)),
        ("pin", json!(redacted::shown(&settings.pin))),
        ("slot", json!(settings.slot.unwrap_or(0))),
        ("token_label", json!(settings.token_label)),
        ("curve", json!(settings.curve)),
        ("key_bits", json!(settings.key_bits)),
        ("force_rw_session", json!(settings.force_rw_session)),
        ("max_parallel", json!(settings.max_parallel)),
        ("public_key", json!(settings.public_key)),
    ]
}
