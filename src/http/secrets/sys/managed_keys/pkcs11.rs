//! Parses and renders the parameters of a managed key of type `pkcs11`.

use serde_json::{Map, Value, json};

use super::write_body::ManagedKeyWriteBody;
use crate::error::Result;
use crate::fields::{MAX_NAME_LEN, Resource as _};
use crate::keys::pkcs11::{Pkcs11Settings, is_supported_mechanism};
use crate::keys::redaction;

/// Maximum length of a key label or token label, in bytes.
const MAX_LABEL_BYTES: usize = 255;
/// Maximum length of a key id, in hexadecimal digits.
const MAX_KEY_ID_DIGITS: usize = 512;
/// Maximum length of a public key in PEM, in bytes.
const MAX_PUBLIC_KEY_BYTES: usize = 4_096;
/// Maximum length of a mechanism, slot or curve, in bytes.
const MAX_WORD_BYTES: usize = 32;

/// Merges a request into the stored parameters.
pub(super) fn read(sent: &ManagedKeyWriteBody, stored: Option<&Pkcs11Settings>) -> Result<Pkcs11Settings> {
    let fields = sent.fields();
    let mut settings = stored.cloned().unwrap_or_default();
    sent.merge_text("library", MAX_NAME_LEN, &mut settings.library)?;
    sent.merge_text("key_label", MAX_LABEL_BYTES, &mut settings.key_label)?;
    sent.merge_text("key_id", MAX_KEY_ID_DIGITS, &mut settings.key_id)?;
    sent.merge_text("token_label", MAX_LABEL_BYTES, &mut settings.token_label)?;
    sent.merge_text("public_key", MAX_PUBLIC_KEY_BYTES, &mut settings.public_key)?;
    settings.merge_flags(fields)?;
    sent.merge_secret("pin", &mut settings.pin)?;
    if let Some(Value::Number(number)) = fields.value("mechanism") {
        settings.mechanism = Some(Pkcs11Settings::validate_numeric_mechanism(number.as_u64())?);
    } else if let Some(text) = fields.text_within("mechanism", MAX_WORD_BYTES)? {
        settings.mechanism = Some(Pkcs11Settings::parse_mechanism(&text)?);
    }
    if let Some(text) = fields.text_within("slot", MAX_WORD_BYTES)? {
        let slot = Pkcs11Settings::parse_slot(&text)?;
        // Slot 0 is ignored if the request selects the token by its label, because reads return slot 0 for such keys.
        let is_number = matches!(fields.value("slot"), Some(Value::Number(_)));
        let repeats_label = fields.value("token_label").is_some() && !settings.token_label.is_empty();
        let is_label = slot == Some(0) && is_number && repeats_label;
        settings.slot = slot.filter(|_| !is_label);
    }
    if let Some(text) = fields.text_within("curve", MAX_WORD_BYTES)? {
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

/// Returns a warning if the mechanism is accepted but cannot be used for signing.
pub(super) fn unsupported_mechanism_warning(settings: &Pkcs11Settings) -> Option<String> {
    let unsupported = settings.mechanism.filter(|number| !is_supported_mechanism(*number));
    unsupported.map(|number| format!("mechanism {number:#06x} is not supported for signing"))
}

/// Renders the parameters. Mechanism and slot are numbers; the slot is 0 if the token is selected by its label.
pub(super) fn to_json(settings: &Pkcs11Settings) -> Map<String, Value> {
    let mut members = settings.to_members();
    let others = [
        ("mechanism", json!(settings.mechanism)),
        ("pin", json!(redaction::redact(&settings.pin))),
        ("slot", json!(settings.slot.unwrap_or(0))),
        ("key_bits", json!(settings.key_bits)),
        ("max_parallel", json!(settings.max_parallel)),
    ];
    members.extend(others.map(|(name, value)| (name.to_owned(), value)));
    members
}
