//! Complete and delta CRLs of every signature algorithm, checked by independent tools: openssl, GnuTLS and pkilint.

use serde_json::json;
use signet::x509::algorithm::SignatureAlgorithm;
use signet::x509::crl::{CrlTbs, encode_entry};
use signet::x509::extension;
use signet::x509::name;
use signet::x509::serial::Serial;
use signet::x509::tbs::encode_signed;

use super::config;
use crate::judges::{judge, refusal};
use crate::v1::pki::foreign::{Crl, Files, openssl, printed, run};
use crate::v1::pki::mount::{Pki, text, with};

/// Keys with the signature algorithms of their CRLs, and openssl's names for these.
const ALGORITHMS: [(&str, u32, &str, &str); 17] = [
    ("rsa", 2048, "", "sha256WithRSAEncryption"),
    ("rsa", 2048, "SHA256WithRSA", "sha256WithRSAEncryption"),
    ("rsa", 2048, "SHA384WithRSA", "sha384WithRSAEncryption"),
    ("rsa", 3072, "SHA512WithRSA", "sha512WithRSAEncryption"),
    ("rsa", 2048, "SHA256WithRSAPSS", "rsassaPss"),
    ("rsa", 2048, "SHA384WithRSAPSS", "rsassaPss"),
    ("rsa", 2048, "SHA512WithRSAPSS", "rsassaPss"),
    ("ec", 256, "ECDSAWithSHA256", "ecdsa-with-SHA256"),
    ("ec", 384, "", "ecdsa-with-SHA384"),
    ("ec", 521, "ECDSAWithSHA512", "ecdsa-with-SHA512"),
    ("ec", 256, "ECDSAWithSHA384", "ecdsa-with-SHA384"),
    ("ec", 256, "ECDSAWithSHA512", "ecdsa-with-SHA512"),
    ("ec", 384, "ECDSAWithSHA256", "ecdsa-with-SHA256"),
    ("ec", 384, "ECDSAWithSHA512", "ecdsa-with-SHA512"),
    ("ec", 521, "ECDSAWithSHA256", "ecdsa-with-SHA256"),
    ("ec", 521, "ECDSAWithSHA384", "ecdsa-with-SHA384"),
    ("ed25519", 0, "Ed25519", "ED25519"),
];

/// Verifies the leaf by openssl with the complete CRL alone and with both, and each CRL by GnuTLS.
pub(super) fn judged(root: &str, complete: &Crl, delta: &Crl, leaf: &str, [before, after]: [bool; 2]) {
    let files = Files::new();
    let ca = files.save("ca.pem", root);
    let leaf = files.save("leaf.pem", leaf);
    let alone = files.save("alone.pem", complete.pem());
    let both = files.save("both.pem", complete.pem() + &delta.pem());
    for (lists, more, revoked) in [(&alone, &[][..], before), (&both, &["-use_deltas", "-extended_crl"][..], after)] {
        let arguments = ["verify", "-x509_strict", "-CAfile", &ca, "-CRLfile", lists, "-crl_check"];
        let output = run("openssl", &[&arguments[..], more, &[&leaf]].concat(), b"");
        let text = printed(&output);
        assert_eq!(output.status.success(), !revoked, "{text}");
        assert!(!revoked || text.contains("certificate revoked"), "{text}");
    }
    for crl in [complete, delta] {
        assert!(crl.is_signed_by(root), "openssl crl");
        let list = files.save("list.pem", crl.pem());
        let output = run("certtool", &["--verify-crl", "--load-ca-certificate", &ca, "--infile", &list], b"");
        let text = printed(&output);
        assert!(output.status.success() && text.contains("Verified."), "{text}");
    }
}

#[actix_web::test]
async fn complete_and_delta_crls_of_every_algorithm_are_valid() {
    let pki = Pki::empty().await;
    let files = Files::new();
    config(&pki, json!({ "auto_rebuild": true, "enable_delta": true })).await;
    pki.post("config/urls", json!({ "delta_crl_distribution_points": "http://ca.test/delta" })).await;
    pki.role(&json!({})).await;
    for (n, (key_type, bits, setting, algorithm)) in ALGORITHMS.into_iter().enumerate() {
        let name = format!("ca{n}");
        let key = json!({ "key_type": key_type, "key_bits": bits, "issuer_name": name, "common_name": name });
        let root = text(&pki.root(key).await, "certificate").to_owned();
        let fields = json!({ "issuer_name": name, "revocation_signature_algorithm": setting });
        pki.post(&format!("issuer/{name}"), fields).await;
        let mut leaves = Vec::new();
        for _ in 0..3 {
            leaves.push(pki.leaf_of(&name).await);
        }
        let [first, second, good] = &leaves[..] else { unreachable!() };
        let why = json!({ "reason": "keyCompromise", "invalidity_date": "2025-01-02T03:04:05Z" });
        pki.post("revoke", with(&why, json!({ "serial_number": first.serial() }))).await;
        assert_eq!(pki.get("crl/rotate").await["success"], true);
        pki.post("revoke", json!({ "serial_number": second.serial(), "reason": "superseded" })).await;
        assert_eq!(pki.get("crl/rotate-delta").await["success"], true);
        let complete = pki.crl(&name).await;
        let response = pki.fetch("GET", &format!("issuer/{name}/crl/delta/der"), &[]).await;
        let delta = Crl::new(response.bytes().await.unwrap().to_vec());
        for crl in [&complete, &delta] {
            assert!(crl.text.contains(&format!("Signature Algorithm: {algorithm}")), "{}", crl.text);
        }
        assert_eq!((complete.serials(), delta.serials()), (vec![first.serial()], vec![second.serial()]));
        for (leaf, revoked) in [(first, [true, true]), (second, [false, true]), (good, [false, false])] {
            judged(&root, &complete, &delta, &leaf.pem, revoked);
        }
        files.write(&format!("{n}-complete.der"), &complete.der);
        files.write(&format!("{n}-delta.der"), &delta.der);
    }
    let entries = json!([{ "serial_number": "0a-01", "revocation_time": 1_700_000_000 }]);
    let body = json!({ "revoked_certs": entries, "crl_number": 9, "next_update": "1h" });
    let worded = pki.data("issuer/ca7/sign-revocation-list", body).await;
    let again = pki.data("issuer/ca7/resign-crls", json!({ "crls": [worded["crl"]], "crl_number": 10 })).await;
    for (name, data) in [("worded.der", worded), ("again.der", again)] {
        files.write(name, &openssl(&["crl", "-outform", "DER"], text(&data, "crl").as_bytes()));
    }
    let folder = files.path("");
    let expected = format!("{} lists linted", 2 * ALGORITHMS.len() + 2);
    assert!(judge("lint_status.py", &["crl", folder.to_str().unwrap()]).contains(&expected));
    let other = json!({ "issuer_name": "ca0", "revocation_signature_algorithm": "ECDSAWithSHA256" });
    pki.refused("issuer/ca0", other, "revocation_signature_algorithm: incompatible with the issuer's key").await;
    pki.stop().await;
}

#[test]
fn pkilint_script_reports_an_invalid_crl() {
    let algorithm = SignatureAlgorithm::Ed25519;
    // No CRL number, no authority key identifier, and nextUpdate before thisUpdate.
    let tbs = CrlTbs {
        algorithm,
        issuer: &name::name(&[]),
        this_update: 1_800_000_000,
        next_update: 1_700_000_000,
        extensions: &[&extension::delta_crl_indicator(1)],
    };
    let entries = encode_entry(&Serial::random(), 1_700_000_000, None, None);
    let tbs = tbs.encode(vec![entries.into()]).pieces().collect::<Vec<_>>().concat();
    let files = Files::new();
    files.write("wrong.der", &encode_signed(&tbs, algorithm, &[0; 64]));
    assert!(refusal("lint_status.py", &["crl", files.path("").to_str().unwrap()]).contains("wrong.der: "));
}
