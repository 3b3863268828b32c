//! The configuration of a managed key of type `pkcs11`, as stored, and its validation.

use serde::{Deserialize, Serialize};

use super::key::Pkcs11Config;
use super::mechanism::{self, KeyFamily};
use super::token::TokenAddress;
use crate::error::{Error, Result};
use crate::fields::resource;
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::pem;
use crate::x509::public_key::PublicKey;

/// Curves of generated keys, by name.
const GENERATED_CURVES: [(&str, Curve); 3] = [("P256", Curve::P256), ("P384", Curve::P384), ("P521", Curve::P521)];

/// Sizes of generated RSA keys, in bits.
const GENERATED_RSA_BITS: [u32; 3] = [2048, 3072, 4096];

/// Maximum value of `max_parallel`, the number of concurrent sessions of one key.
const MAX_PARALLEL: i64 = 1024;

const MAX_MECHANISM_DIGITS: usize = 8;

resource! {
    /// The parameters of a key. Absent values are empty or 0, as clients send them.
    #[derive(Clone, Serialize, Deserialize)]
    pub struct Pkcs11Settings {
        /// Name of a PKCS #11 library in the server's configuration.
        text library;
        /// Number of the slot, if the token is found by slot.
        value slot: Option<u64>;
        /// Label of the token, if it is found by label.
        text token_label;
        /// Label of the key (`CKA_LABEL`), also of a generated one.
        text key_label;
        /// Identifier of the key (`CKA_ID`), hexadecimal.
        text key_id;
        /// Number of the mechanism, a `CKM_` constant.
        value mechanism: Option<u64>;
        /// PIN of the token's user.
        #[serde(with = "crate::secret::sealed")]
        secret pin;
        /// Curve of a generated EC key: `P256`, `P384` or `P521`.
        text curve;
        /// Size of a generated RSA key, in bits.
        value key_bits: u32;
        /// `true` to open read-write sessions even if read-only ones suffice.
        flag force_rw_session;
        /// Maximum number of concurrent calls to the module.
        value max_parallel: u32 = 1;
        /// The public key as PEM, for a token that does not return it.
        #[serde(default)]
        text public_key;
    }
}

impl Pkcs11Settings {
    /// Parses `mechanism`: `0x` and at most eight hexadecimal digits.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse_mechanism(text: &str) -> Result<u64> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let digits = digits.filter(|digits| (1..=MAX_MECHANISM_DIGITS).contains(&digits.len()));
        let all_hexadecimal = |digits: &&str| digits.bytes().all(|b| b.is_ascii_hexdigit());
        let number = digits.filter(all_hexadecimal).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.ok_or_else(|| Error::invalid("mechanism must be a hexadecimal value with a 0x prefix"))
    }

    /// Validates a `mechanism` that a request contains as a number, the form in which reads return it.
    ///
    /// # Errors
    /// `Invalid` for a number of more than 32 bits.
    pub fn validate_numeric_mechanism(number: Option<u64>) -> Result<u64> {
        let is_fitting = |number: &u64| u32::try_from(*number).is_ok();
        number.filter(is_fitting).ok_or_else(|| Error::invalid("mechanism must be an unsigned number of 32 bits"))
    }

    /// Parses `slot`: decimal, up to 64 bits; an empty text is `None`.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse_slot(text: &str) -> Result<Option<u64>> {
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        number.map(Some).ok_or_else(|| Error::invalid("slot must be a decimal number"))
    }

    /// Parses `curve`, ignoring case and `-`, and returns its usual spelling. An empty text stays empty.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse_curve(text: &str) -> Result<String> {
        if text.is_empty() {
            return Ok(String::new());
        }
        let is = |word: &str| text.eq_ignore_ascii_case(word) || text.eq_ignore_ascii_case(&word.replace('P', "P-"));
        let found = GENERATED_CURVES.iter().find(|(word, _)| is(word));
        found.map(|(word, _)| (*word).to_owned()).ok_or_else(|| Error::invalid("curve must be one of P256, P384, P521"))
    }

    /// Validates `key_bits`; 0 means absent.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse_key_bits(number: i64) -> Result<u32> {
        let bits = u32::try_from(number).ok().filter(|bits| *bits == 0 || GENERATED_RSA_BITS.contains(bits));
        bits.ok_or_else(|| Error::invalid("key_bits must be one of 2048, 3072, 4096"))
    }

    /// Validates `max_parallel`.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse_max_parallel(number: i64) -> Result<u32> {
        match number {
            ..=0 => Err(Error::invalid("max_parallel must be at least 1")),
            1..=MAX_PARALLEL => Ok(u32::try_from(number).unwrap_or(1)),
            _ => Err(Error::invalid(format!("max_parallel must be at most {MAX_PARALLEL}"))),
        }
    }

    /// Parses `public_key`: one PEM block `PUBLIC KEY`; an empty text is `None`.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse_public_key(text: &str) -> Result<Option<PublicKey>> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let wrong = || Error::invalid("public_key must be one PEM block PUBLIC KEY");
        let (label, der) =
            pem::parse_first_block(text).map_err(|error| error.within("public_key"))?.ok_or_else(wrong)?;
        if label != "PUBLIC KEY" {
            return Err(wrong());
        }
        PublicKey::parse(&der).map(Some).map_err(|error| error.within("public_key"))
    }

    /// Validates the parameters and their combination.
    ///
    /// # Errors
    /// `Invalid`, with the parameter and the rule.
    pub fn check(&self, allow_generate_key: bool) -> Result<()> {
        if self.library.is_empty() {
            return Err(Error::invalid("missing library"));
        }
        match (self.slot.is_some(), !self.token_label.is_empty()) {
            (false, false) => return Err(Error::invalid("either slot or token_label is required")),
            (true, true) => return Err(Error::invalid("only one of slot or token_label can be set")),
            _ => {}
        }
        if self.key_label.is_empty() && self.key_id.is_empty() {
            return Err(Error::invalid("either key_label or key_id is required"));
        }
        self.key_id_bytes()?;
        Self::parse_public_key(&self.public_key)?;
        let mechanism = self.require_mechanism()?;
        if self.pin.expose().is_empty() {
            return Err(Error::invalid("pin is required"));
        }
        if !allow_generate_key {
            return Ok(());
        }
        match mechanism::key_family(mechanism) {
            Some(KeyFamily::Ec) if self.curve.is_empty() => {
                Err(Error::invalid("curve is required when allow_generate_key is true and the mechanism is ECDSA"))
            }
            Some(KeyFamily::Rsa) if self.key_bits == 0 => {
                Err(Error::invalid("key_bits must be one of 2048, 3072, 4096 when allow_generate_key is true"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the configuration of the backend of the managed key `name`.
    ///
    /// # Errors
    /// As [`Pkcs11Settings::check`].
    pub fn config(&self, name: &str, allow_generate_key: bool) -> Result<Pkcs11Config> {
        self.check(allow_generate_key)?;
        let token = match self.slot {
            Some(number) => TokenAddress::Slot(number),
            None => TokenAddress::Label(self.token_label.clone()),
        };
        let mechanism = self.require_mechanism()?;
        Ok(Pkcs11Config {
            name: name.to_owned(),
            library: self.library.clone(),
            token,
            key_label: Some(self.key_label.clone()).filter(|label| !label.is_empty()),
            key_id: self.key_id_bytes()?,
            mechanism,
            pin: self.pin.clone(),
            force_rw_session: self.force_rw_session,
            generate: allow_generate_key.then(|| self.generated_kind(mechanism)),
            public: Self::parse_public_key(&self.public_key)?,
        })
    }

    fn require_mechanism(&self) -> Result<u64> {
        self.mechanism.ok_or_else(|| Error::invalid("missing mechanism"))
    }

    /// The type of a generated key. A type that does not fit the mechanism is rejected only when the key is generated.
    fn generated_kind(&self, mechanism: u64) -> KeyKind {
        let curve = GENERATED_CURVES.iter().find(|(word, _)| *word == self.curve).map(|(_, curve)| KeyKind::Ec(*curve));
        let rsa = KeyKind::Rsa { bits: self.key_bits };
        match mechanism::key_family(mechanism) {
            Some(KeyFamily::Rsa) => rsa,
            Some(KeyFamily::Ed25519) => KeyKind::Ed25519,
            Some(KeyFamily::Ec) | None => curve.unwrap_or(rsa),
        }
    }

    /// The bytes of `key_id`.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn key_id_bytes(&self) -> Result<Option<Vec<u8>>> {
        if self.key_id.is_empty() {
            return Ok(None);
        }
        let digits = self.key_id.strip_prefix("0x").unwrap_or(&self.key_id).as_bytes();
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let is_hexadecimal = digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit);
        let bytes = is_hexadecimal.then(|| digits.chunks(2).map(octet).collect::<Option<Vec<u8>>>()).flatten();
        let bytes = bytes.filter(|bytes| !bytes.is_empty());
        bytes.map(Some).ok_or_else(|| Error::invalid("key_id must be the identifier in hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn valid_settings() -> Pkcs11Settings {
        Pkcs11Settings {
            library: "hsm".to_owned(),
            token_label: "one".to_owned(),
            key_label: "web".to_owned(),
            mechanism: Some(0x1041),
            pin: Secret::new("4711"),
            ..Pkcs11Settings::default()
        }
    }

    #[test]
    fn mechanisms_slots_and_names_are_parsed() {
        for (text, number) in [("0x1041", 0x1041), ("0X000d", 13), ("0xFFFFFFFF", 0xffff_ffff)] {
            assert_eq!(Pkcs11Settings::parse_mechanism(text).unwrap(), number);
        }
        for text in ["1041", "4161", "0x", "0xZZ", "0x100000000", "0x-1", "0x+1", "", " 0x1"] {
            assert!(Pkcs11Settings::parse_mechanism(text).is_err(), "{text}");
        }
        for (text, slot) in [("", None), ("0", Some(0)), ("18446744073709551615", Some(u64::MAX))] {
            assert_eq!(Pkcs11Settings::parse_slot(text).unwrap(), slot);
        }
        for text in ["18446744073709551616", "-1", "+1", "0x1", "one", " 1"] {
            assert!(Pkcs11Settings::parse_slot(text).is_err(), "{text}");
        }
        for (text, word) in [("", ""), ("p256", "P256"), ("P-384", "P384"), ("p-521", "P521")] {
            assert_eq!(Pkcs11Settings::parse_curve(text).unwrap(), word);
        }
        for text in ["P224", "secp256r1", "256"] {
            assert!(Pkcs11Settings::parse_curve(text).is_err(), "{text}");
        }
        assert!([0, 2048, 3072, 4096].into_iter().all(|bits| Pkcs11Settings::parse_key_bits(bits).is_ok()));
        assert!([-1, 1024, 2049, 8192, i64::MAX].into_iter().all(|bits| Pkcs11Settings::parse_key_bits(bits).is_err()));
        assert!([1, 1024].into_iter().all(|n| Pkcs11Settings::parse_max_parallel(n).is_ok()));
        for (number, text) in
            [(0, "max_parallel must be at least 1"), (1025, "max_parallel must be at most 1024"), (i64::MIN, "max_")]
        {
            assert!(Pkcs11Settings::parse_max_parallel(number).unwrap_err().text().starts_with(text));
        }
    }

    type Change = fn(&mut Pkcs11Settings);

    #[test]
    fn parameters_are_validated_against_each_other() {
        valid_settings().check(false).unwrap();
        let wrong: [(Change, &str); 9] = [
            (|s| s.library.clear(), "missing library"),
            (|s| s.token_label.clear(), "either slot or token_label is required"),
            (|s| s.slot = Some(1), "only one of slot or token_label can be set"),
            (|s| s.key_label.clear(), "either key_label or key_id is required"),
            (|s| s.key_id = "0a0".to_owned(), "key_id must be the identifier"),
            (|s| s.key_id = "0x".to_owned(), "key_id must be the identifier"),
            (|s| s.key_id = "ä0".to_owned(), "key_id must be the identifier"),
            (|s| s.mechanism = None, "missing mechanism"),
            (|s| s.pin = Secret::default(), "pin is required"),
        ];
        for (change, text) in wrong {
            let mut settings = valid_settings();
            change(&mut settings);
            let error = settings.check(false).unwrap_err();
            assert!(error.text().starts_with(text), "{error}");
        }
        let by_id = Pkcs11Settings { key_label: String::new(), key_id: "0x0A0b".to_owned(), ..valid_settings() };
        let config = by_id.config("web", false).unwrap();
        assert_eq!((config.key_label, config.key_id), (None, Some(vec![0x0a, 0x0b])));
    }

    #[test]
    fn generated_key_requires_curve_or_size() {
        let of = |mechanism, curve: &str, key_bits| Pkcs11Settings {
            mechanism: Some(mechanism),
            curve: curve.to_owned(),
            key_bits,
            ..valid_settings()
        };
        for (mechanism, text) in [
            (0x1041, "curve is required"),
            (0x1044, "curve is required"),
            (0x0001, "key_bits must be one of"),
            (0x0043, "key_bits must be one of"),
        ] {
            let error = of(mechanism, "", 0).check(true).unwrap_err();
            assert!(error.text().starts_with(text), "{error}");
            of(mechanism, "", 0).check(false).unwrap();
        }
        assert_eq!(of(0x1041, "P384", 0).config("web", true).unwrap().generate, Some(KeyKind::Ec(Curve::P384)));
        assert_eq!(of(0x0009, "", 3072).config("web", true).unwrap().generate, Some(KeyKind::Rsa { bits: 3072 }));
        assert_eq!(of(0x1041, "P384", 0).config("web", false).unwrap().generate, None);
        // The key type of this mechanism is unknown, so it is rejected only on generation.
        assert_eq!(of(0x1087, "", 0).config("web", true).unwrap().generate, Some(KeyKind::Rsa { bits: 0 }));
    }
}
