//! Rules that every role must satisfy.

use super::Role;
use crate::error::{Error, Result, Warnings};
use crate::fields::ListFieldSlot;
use crate::pki::mount::role::{RoleKeys, SignatureBits, default_key_usage};
use crate::pki::values::oid::{check_oid_size, is_dotted_oid};
use crate::pki::values::{check_ext_key_usage, check_key_usage, parse_network, parse_other_name, subject_bounds};
use crate::x509::algorithm::{Curve, KeyKind};
use crate::x509::oid;
use crate::x509::usage::{KeyUsage, OCSP_SIGNING, eku_oids};

const OCSP_SIGNING_WARNING: &str = "ext_key_usage: certificates with OCSPSigning are OCSP responders: their keys can \
    sign any status for every certificate of the issuer, even revoked ones (RFC 6960 4.2.2.2)";

impl Role {
    /// Returns `true` if certificates of the role may sign OCSP responses.
    pub(crate) fn grants_ocsp_signing(&self) -> bool {
        let named = eku_oids(&self.ext_key_usage, false, false, false, false, &self.ext_key_usage_oids);
        named.is_ok_and(|oids| oids.iter().any(|oid| oid == OCSP_SIGNING))
    }

    /// Validates the role. Returns its stored form and warnings for the writer.
    ///
    /// # Errors
    /// `Invalid` naming field and rule.
    pub fn checked(self) -> Result<(Self, Warnings)> {
        self.checked_after(None)
    }

    /// Like [`Role::checked`], for a write that replaces the role `before`. Size limits apply only to changed lists, so
    /// that lists stored by an older version stay valid.
    ///
    /// # Errors
    /// As [`Role::checked`].
    pub fn checked_after(mut self, before: Option<&Self>) -> Result<(Self, Warnings)> {
        for ListFieldSlot { slot, limit } in Self::lists() {
            let list = (slot.get)(&self);
            if before.is_none_or(|before| (slot.get)(before) != list) {
                limit.check(slot.name, list)?;
            }
        }
        if before.is_none_or(|before| before.key_usage != self.key_usage) {
            check_key_usage(&self.key_usage)?;
        }
        if before.is_none_or(|before| before.ext_key_usage != self.ext_key_usage) {
            check_ext_key_usage(&self.ext_key_usage)?;
        }
        let mut warnings = self.normalize_leases();
        warnings.extend(self.unsuitable_usage_warning());
        warnings.extend(self.time_stamping_warning());
        warnings.extend(self.grants_ocsp_signing().then(|| OCSP_SIGNING_WARNING.to_owned()));
        self.check_limits()?;
        if self.issuer_ref.is_empty() {
            self.issuer_ref = "default".to_owned();
        }
        if self.keys.are_rsa() && self.signature_bits == SignatureBits::ISSUER_DEFAULT {
            self.signature_bits = SignatureBits::SHA_256;
        }
        self.normalize_lists()?;
        let subject = [&self.country, &self.province, &self.locality, &self.organization, &self.ou];
        let broken = subject_bounds::role_violations(subject.map(Vec::as_slice));
        warnings.extend(subject_bounds::reject_if_strict(self.strict_subject, broken)?);
        Ok((self, warnings))
    }

    /// Returns a warning about key usages in the role that certificates with its type of key must not have. Such
    /// certificates are issued nevertheless, because some clients send the same list for every type of key.
    fn unsuitable_usage_warning(&self) -> Option<String> {
        let RoleKeys::Only(spec) = self.keys else { return None };
        let (unfit, rule) = match spec.kind() {
            KeyKind::Rsa { .. } => return None,
            KeyKind::Ec(_) => (KeyUsage::ENCIPHERMENT, "RFC 8813 3"),
            KeyKind::Ed25519 => (KeyUsage::ENCIPHERMENT.union(KeyUsage::AGREEMENT), "RFC 9295 3"),
        };
        let is_unfit = |name: &&String| {
            let usage = KeyUsage::from_names(std::slice::from_ref(*name));
            !usage.is_empty() && unfit.contains(usage)
        };
        let fits = !self.has_explicit_key_usage() || self.key_usage_for(spec.kind()) == default_key_usage(spec.kind());
        let named: Vec<&str> = match fits {
            true => Vec::new(),
            false => self.key_usage.iter().filter(is_unfit).map(String::as_str).collect(),
        };
        let named = named.join(", ");
        let kind = spec.kind().name();
        (!named.is_empty()).then(|| format!("key_usage: {named} must not be in certificates of {kind} keys ({rule})"))
    }

    /// Returns a warning if time-stamp verifiers reject certificates of a role with id-kp-timeStamping.
    fn time_stamping_warning(&self) -> Option<String> {
        let purposes = self.purposes().ok()?;
        if !purposes.iter().any(|purpose| purpose == oid::TIME_STAMPING) {
            return None;
        }
        if purposes.len() > 1 {
            return Some(
                "ext_key_usage: verifiers of time stamps refuse certificates with TimeStamping and other usages (RFC \
                 3161 2.3). Set server_flag and client_flag to false and list only TimeStamping"
                    .to_owned(),
            );
        }
        let fits = KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::CONTENT_COMMITMENT);
        let kinds = [KeyKind::Rsa { bits: 2048 }, KeyKind::Ec(Curve::P256), KeyKind::Ed25519];
        let is_unfit = kinds.iter().any(|kind| !fits.contains(self.key_usage_for(*kind)));
        is_unfit.then(|| {
            "key_usage: verifiers of time stamps refuse certificates with usages other than DigitalSignature and \
             ContentCommitment"
                .to_owned()
        })
    }

    fn normalize_leases(&mut self) -> Warnings {
        let mut warnings = Warnings::default();
        if self.no_store && self.generate_lease {
            self.generate_lease = false;
            warnings.add("generate_lease was set to false: no_store and generate_lease are mutually exclusive");
        }
        if self.generate_lease {
            warnings.add(
                "generate_lease: the server stores a lease with every certificate, which costs storage; prefer short \
                 lifetimes",
            );
        }
        warnings
    }

    /// Checks the role's flags and lifetimes.
    ///
    /// # Errors
    /// `Invalid` naming field and rule.
    pub(crate) fn check_limits(&self) -> Result<()> {
        if self.allow_globs_in_identity_templates {
            let rule = "must be false: this server never treats identity values as patterns";
            return Err(Error::invalid(format!("allow_globs_in_identity_templates: {rule}")));
        }
        self.check_templates()?;
        if self.max_ttl > 0 && self.ttl > self.max_ttl {
            return Err(Error::invalid("ttl: ttl must not exceed max_ttl"));
        }
        Ok(())
    }

    /// Converts the role's lists to their stored form.
    ///
    /// # Errors
    /// `Invalid` naming field and rule.
    pub(crate) fn normalize_lists(&mut self) -> Result<()> {
        if !self.ext_key_usage_oids.iter().all(|oid| is_dotted_oid(oid)) {
            return Err(Error::invalid("ext_key_usage_oids: every entry must be a dotted OID"));
        }
        self.ext_key_usage_oids.iter().try_for_each(|oid| check_oid_size("ext_key_usage_oids", oid))?;
        self.policy_identifiers.iter().try_for_each(|policy| check_oid_size("policy_identifiers", policy.oid()))?;
        if self.allowed_other_sans != ["*"] {
            self.allowed_other_sans
                .iter()
                .try_for_each(|entry| parse_other_name("error parsing allowed_other_sans", entry).map(drop))?;
        }
        for network in &mut self.allowed_ip_sans_cidr {
            let rule = "allowed_ip_sans_cidr: every entry must be a network such as 10.0.0.0/8";
            *network = parse_network(network).ok_or_else(|| Error::invalid(rule))?.to_string();
        }
        normalize_cn_validations(&mut self.cn_validations)?;
        for ListFieldSlot { slot, .. } in Self::subject_lists() {
            if (slot.get)(self).iter().any(|value| value.chars().any(char::is_control)) {
                return Err(Error::invalid(format!("{}: control characters are not allowed", slot.name)));
            }
        }
        Ok(())
    }
}

fn normalize_cn_validations(words: &mut Vec<String>) -> Result<()> {
    words.iter_mut().for_each(|word| word.make_ascii_lowercase());
    let refuse = |problem: &str| Err(Error::invalid(format!("cn_validations: {problem}")));
    if words.iter().any(|word| !["email", "hostname", "disabled"].contains(&word.as_str())) {
        return refuse("must be email and hostname, or disabled");
    }
    if words.iter().enumerate().any(|(at, word)| words[..at].contains(word)) {
        return refuse("an entry is given twice");
    }
    if words.len() > 1 && words.iter().any(|word| word == "disabled") {
        return refuse("disabled must be the only entry");
    }
    if words.is_empty() {
        *words = Role::default().cn_validations;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
