//! Checks, when a role is written, that at least one certificate could be issued under it. A minimal certificate is
//! built with a placeholder key, issuer and name, and must pass the same [`structure`](super::structure) checks as
//! every certificate.

use std::time::Duration;

use super::structure::{CertificateKind, ExpectedIssuer, FieldSources};
use super::{linted_tbs, validity};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::pki::mount::profile::EncodedRole;
use crate::pki::mount::role::RoleKeys;
use crate::x509::algorithm::{Curve, KeyKind, SignatureAlgorithm};
use crate::x509::extension::{self, SubjectAltNames};
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::public_key::PublicKey;
use crate::x509::serial::Serial;
use crate::x509::tbs::CertificateTbs;

/// Checks that a certificate of this role could be issued.
///
/// # Errors
/// `Invalid` naming the rule that every certificate of the role would violate.
pub(crate) fn check_role_feasible(entry: &EncodedRole, now: Time) -> Result<()> {
    let kind = match entry.role.keys {
        RoleKeys::Only(spec) => spec.kind(),
        // Among the key types with small keys, EC permits the most usages.
        RoleKeys::Any => KeyKind::Ec(Curve::P256),
    };
    validity::check_role_dates(&entry.role, now)
        .and_then(|()| check_minimal_certificate(entry, kind))
        .map_err(|e| Error::invalid(format!("role: no certificate can be issued under this role: {}", e.text())))
}

/// Checks a minimal certificate of the role for a key of kind `kind`.
fn check_minimal_certificate(entry: &EncodedRole, kind: KeyKind) -> Result<()> {
    let key = PublicKey::placeholder(kind);
    let algorithm = SignatureAlgorithm::Ed25519;
    let key_id = [1; 20];
    let named = |text: &str| rdn(Attribute::CommonName, &[text.to_owned()]);
    let issuer = name::name(&[&named("a")]);
    let sans = SubjectAltNames { dns: vec!["a".to_owned()], ..SubjectAltNames::default() };
    let subject = name::name(&[&entry.subject]);
    let tbs = CertificateTbs {
        serial: &Serial::PLACEHOLDER,
        algorithm,
        issuer: &issuer,
        not_before: Time::UNIX_EPOCH,
        not_after: Time::UNIX_EPOCH + Duration::from_secs(86_400),
        subject: &subject,
        spki: key.spki(),
        extensions: &[
            entry.leading_extensions(kind),
            &extension::subject_key_id(&key.key_id()),
            &extension::authority_key_id(&key_id),
            &extension::subject_alt_name(&sans, subject.is_empty()),
            &entry.policies,
        ],
    }
    .encode();
    let sources = &FieldSources::all("certificate");
    let expected = ExpectedIssuer { algorithm, issuer: &issuer, key_id: &key_id, sources };
    linted_tbs::lint_certificate(&tbs, CertificateKind::Leaf, &expected, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    use crate::pki::mount::role::{NotAfterBound, Role};
    use crate::pki::values::original_text::Rfc3339Text;

    fn check_changed_role(change: impl FnOnce(&mut Role)) -> Result<()> {
        let mut role = Role::default();
        change(&mut role);
        check_role_feasible(&EncodedRole::new(role.checked().unwrap().0, 1).unwrap(), datetime!(2030-06-01 12:00 UTC))
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn infeasible_role_is_refused_with_the_rule() {
        for (usages, rule) in [
            (&["CertSign"][..], "keyCertSign needs cA TRUE"),
            (&["DigitalSignature", "KeyUsageCertSign"], "keyCertSign needs cA TRUE"),
            (&["EncipherOnly"], "encipherOnly and decipherOnly need keyAgreement"),
        ] {
            let error = check_changed_role(|role| role.key_usage = texts(usages)).unwrap_err();
            assert!(error.text().starts_with("role: ") && error.text().contains(rule), "{error}");
        }
        let many: Vec<String> = (0..60).map(|i| format!("{i:0>900}")).collect();
        let error = check_changed_role(|role| role.ou = many.clone()).unwrap_err();
        assert!(error.text().contains("46 KiB"), "{error}");
        check_changed_role(|role| role.ou = many[..40].to_vec()).unwrap();
    }

    #[test]
    fn role_with_impossible_dates_is_reported_with_the_rule() {
        let time = |text: &str| Some(Rfc3339Text::new("at", text).unwrap());
        let until = |text: &str| NotAfterBound::parse(text).unwrap();
        let past = "2030-01-01T00:00:00Z";
        let near = "2031-01-01T00:00:00Z";
        let far = "2032-01-01T00:00:00Z";
        for (start, end, bound, rule) in [
            (None, time(past), "permit", Some("not_after: lies in the past")),
            (None, None, past, Some("not_after: later than the role allows")),
            (None, time(far), near, Some("not_after: later than the role allows")),
            (time(far), time(near), "permit", Some("not_before: must be before not_after")),
            (time(far), None, near, Some("not_after: later than the role allows")),
            (time(past), time(near), "permit", None),
            (time(near), time(far), far, None),
            (None, None, near, None),
            (time(near), None, "ttl-limited", None),
            (None, time(near), "forbid", None),
        ] {
            let checked = check_changed_role(|role| {
                (role.not_before, role.not_after, role.not_after_bound) = (start, end, until(bound));
            });
            let text = checked.err().map(|error| error.text().to_owned());
            assert_eq!(text.is_some(), rule.is_some(), "{text:?}");
            assert!(rule.is_none_or(|rule| text.unwrap().contains(rule)), "{rule:?}");
        }
        let short = |role: &mut Role| (role.not_before, role.max_ttl) = (time(far), 3600);
        assert!(check_changed_role(short).unwrap_err().text().ends_with("not_before: must be before not_after"));
    }

    #[test]
    fn signing_only_key_requires_a_signing_usage() {
        let of = |usages: &[&str]| {
            check_changed_role(|role| {
                (role.keys, role.key_usage) = (RoleKeys::new("ed25519", 0).unwrap(), texts(usages))
            })
        };
        for usages in [&["KeyAgreement"][..], &["KeyEncipherment", "DataEncipherment"]] {
            assert!(of(usages).unwrap_err().text().contains("(RFC 9295 3)"), "{usages:?}");
        }
        for usages in [&[][..], &["DigitalSignature", "KeyAgreement"], &["NonRepudiation"], &["CRLSign"]] {
            of(usages).unwrap();
        }
        check_changed_role(|role| (role.keys, role.key_usage) = (RoleKeys::Any, texts(&["KeyAgreement"]))).unwrap();
    }

    #[test]
    fn feasible_role_passes() {
        check_changed_role(|_| ()).unwrap();
        for usages in [&[][..], &["CRLSign"], &["EncipherOnly", "KeyAgreement"], &["ContentCommitment"]] {
            check_changed_role(|role| role.key_usage = texts(usages)).unwrap();
        }
        check_changed_role(|role| role.keys = RoleKeys::Any).unwrap();
        let subject = |role: &mut Role| {
            for list in [&mut role.ou, &mut role.country, &mut role.postal_code] {
                *list = texts(&["DE"]);
            }
        };
        check_changed_role(subject).unwrap();
    }
}
