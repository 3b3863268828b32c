//! Requested values that are not granted are named in warnings, and fields that select a value are used or rejected.

use serde_json::{Value, json};

use super::foreign::{Files, csr, key, openssl_text};
use super::mount::{Leaf, Pki, with};

fn any(more: Value) -> Value {
    with(&json!({ "allow_any_name": true, "key_type": "any" }), more)
}

async fn signed(pki: &Pki, subject: &str, extensions: &str) -> Leaf {
    pki.ask("sign/r", json!({ "csr": csr("ec-256", subject, extensions) })).await
}

#[actix_web::test]
async fn parts_of_a_csr_that_a_role_drops_are_named() {
    let pki = Pki::start().await;
    pki.role(&any(json!({}))).await;
    for (subject, extensions, named) in [
        ("/CN=a.foo/O=Acme/OU=Web/emailAddress=a@b.c", "", "csr: subject not granted: O, OU, EMAIL"),
        ("/CN=a.foo", "keyUsage=digitalSignature,dataEncipherment", "keyUsage (2.5.29.15): dataEncipherment"),
        ("/CN=a.foo", "extendedKeyUsage=serverAuth,codeSigning", "extKeyUsage (2.5.29.37): codesigning (1.3.6.1.5.5"),
        ("/CN=a.foo", "extendedKeyUsage=1.2.3.4", "extKeyUsage (2.5.29.37): 1.2.3.4"),
        ("/CN=a.foo", "tlsfeature=status_request", "not granted: TLS feature (1.3.6.1.5.5.7.1.24)"),
        ("/CN=a.foo", "basicConstraints=CA:TRUE", "not granted: basicConstraints (2.5.29.19)"),
        ("/CN=a.foo", "1.2.3.4.5=critical,ASN1:UTF8String:x", "not granted: 1.2.3.4.5, critical"),
        ("/CN=a.foo", "authorityInfoAccess=OCSP;URI:http://a.test", "authorityInfoAccess (1.3.6.1.5.5.7.1.1)"),
    ] {
        let warnings = signed(&pki, subject, extensions).await.answer.warnings();
        assert!(warnings.contains(named) && warnings.lines().count() == 1, "{subject} {extensions}: {warnings}");
    }
    let granted = "subjectAltName=DNS:a.foo\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\n\
                   subjectKeyIdentifier=hash";
    assert_eq!(signed(&pki, "/CN=a.foo", granted).await.answer.warnings(), "");
    pki.role(&any(json!({ "organization": "Acme", "allowed_user_ids": "*" }))).await;
    assert_eq!(signed(&pki, "/O=Acme/CN=a.foo/UID=bob", "").await.answer.warnings(), "");
    // Values that the role takes from the request are dropped from the CSR.
    pki.role(&any(json!({ "use_csr_sans": false, "use_csr_common_name": false }))).await;
    let request = csr("ec-256", "/CN=b.foo", "subjectAltName=DNS:a.foo,DNS:b.foo");
    let warnings = pki.ask("sign/r", json!({ "csr": request, "common_name": "a.foo" })).await.answer.warnings();
    assert!(warnings.contains("subject not granted: CN"), "{warnings}");
    assert!(warnings.contains("subjectAltName (2.5.29.17): b.foo"), "{warnings}");
    // The number of warnings is limited, because the caller controls the number of extensions.
    pki.role(&any(json!({}))).await;
    let many: Vec<_> = (1..=30).map(|n| format!("1.2.3.{n}=ASN1:NULL")).collect();
    let warnings = signed(&pki, "/CN=a.foo", &many.join("\n")).await.answer.warnings();
    assert_eq!(warnings.lines().count(), 21, "{warnings}");
    assert!(warnings.ends_with("csr: 10 more extensions not granted"), "{warnings}");
    pki.stop().await;
}

/// A CSR with attributes in addition to its extensions.
fn csr_with_attributes(lines: &str) -> String {
    let files = Files::new();
    let text = format!("[req]\ndistinguished_name=dn\nattributes=at\nprompt=no\n[dn]\nCN=a.foo\n[at]\n{lines}\n");
    let config = files.save("attributes.cnf", text);
    let key = files.save("key.pem", key("ec-256"));
    // openssl omits the attributes if the subject is on its command line.
    openssl_text(&["req", "-new", "-key", &key, "-config", &config], b"")
}

#[actix_web::test]
async fn attributes_of_a_csr_are_named_and_not_quoted() {
    let pki = Pki::start().await;
    pki.role(&any(json!({}))).await;
    let common = "challengePassword=hunter2secret\nunstructuredName=the name";
    let request = csr_with_attributes(&format!("{common}\n1.3.6.1.4.1.311.13.2.3=10.0.1\n1.2.3.4=x"));
    for path in ["sign/r", "sign-verbatim", "root/sign-intermediate"] {
        let signed = pki.certify(path, json!({ "csr": request, "common_name": "a.foo" })).await;
        let warnings = signed.answer.warnings();
        let named = warnings.lines().find_map(|line| line.split_once("csr: attributes not granted: ")).unwrap().1;
        let mut named: Vec<&str> = named.split(", ").collect();
        named.sort_unstable();
        let expected = [
            "1.2.3.4",
            "Microsoft OS version (1.3.6.1.4.1.311.13.2.3)",
            "challengePassword (1.2.840.113549.1.9.7)",
            "unstructuredName (1.2.840.113549.1.9.2)",
        ];
        assert_eq!(named, expected, "{path}");
        assert!(!signed.answer.text.contains("hunter2") && !signed.answer.text.contains("the name"), "{path}");
    }
    // This list is limited as well.
    let many: Vec<_> = (1..=30).map(|n| format!("1.2.3.{n}=x")).collect();
    let request = csr_with_attributes(&many.join("\n"));
    let warnings = pki.ask("sign/r", json!({ "csr": request })).await.answer.warnings();
    assert!(warnings.ends_with(" and 10 more"), "{warnings}");
    pki.stop().await;
}

#[actix_web::test]
async fn parts_of_a_csr_that_other_endpoints_drop_are_named() {
    let pki = Pki::start().await;
    let extensions = "keyUsage=digitalSignature\nauthorityKeyIdentifier=none\n1.2.3.4=ASN1:NULL";
    let own = "keyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n2.5.29.35=DER:3003800101";
    let request =
        json!({ "csr": csr("ec-256", "/CN=a.foo", own), "key_usage": "KeyAgreement", "ext_key_usage": "Any" });
    let warnings = pki.ask("sign-verbatim", request).await.answer.warnings();
    for named in ["authorityKeyIdentifier (2.5.29.35)", "key_usage ignored", "ext_key_usage and ext_key_usage_oids ign"]
    {
        assert!(warnings.contains(named), "{named}: {warnings}");
    }
    let same =
        json!({ "csr": csr("ec-256", "/CN=a.foo", "keyUsage=digitalSignature"), "key_usage": "DigitalSignature" });
    assert_eq!(pki.ask("sign-verbatim", same).await.answer.warnings(), "");
    let below = csr("ec-256", "/CN=Below/O=Acme", extensions);
    let signed = pki.certify("root/sign-intermediate", json!({ "csr": below, "common_name": "Below" })).await;
    let warnings = signed.answer.warnings();
    for named in ["subject not granted: O", "keyUsage (2.5.29.15): digitalSignature", "not granted: 1.2.3.4"] {
        assert!(warnings.contains(named), "{named}: {warnings}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn field_that_selects_a_key_of_another_origin_is_refused() {
    let pki = Pki::start().await;
    for (path, origin) in [
        ("root/generate/exported", "exported"),
        ("issuers/generate/intermediate/exported", "exported"),
        ("root/rotate/existing", "existing"),
    ] {
        for field in ["managed_key_name", "managed_key_id", "key_ref"] {
            if (field, origin) == ("key_ref", "existing") {
                continue;
            }
            let body = json!({ "common_name": "Below", field: "default" });
            pki.refused(path, body, &format!("{field}: is allowed only on paths of type ")).await;
        }
    }
    // An empty text counts as absent.
    let empty = json!({ "common_name": "Below", "managed_key_name": "", "key_ref": null });
    pki.post("intermediate/generate/internal", empty).await;
    pki.stop().await;
}

#[actix_web::test]
async fn common_name_without_matching_san_warns_or_is_rejected() {
    let pki = Pki::start().await;
    let request = |name: &str| json!({ "common_name": name });
    let role = json!({ "allow_any_name": true });
    let leaf = pki.issue(&role, request("10.1.2.3")).await;
    assert_eq!((leaf.sans(), leaf.answer.warnings().as_str()), (vec!["IP Address:10.1.2.3".to_owned()], ""));
    let leaf = pki.issue(&with(&role, json!({ "allow_ip_sans": false })), request("10.1.2.3")).await;
    assert!(leaf.sans().is_empty() && leaf.answer.warnings().contains("no subject alternative name"));
    for name in ["256.1.1.1", "*", "f*o.foo.test", "a.123"] {
        pki.deny(&role, request(name), "common_name: ").await;
        let leaf = pki.issue(&with(&role, json!({ "enforce_hostnames": false })), request(name)).await;
        assert!(leaf.answer.warnings().contains("no subject alternative name"), "{name}");
    }
    let by_csr = json!({ "csr": csr("ec-256", "/CN=10.1.2.3", "") });
    assert_eq!(pki.sign(&role, by_csr).await.sans(), ["IP Address:10.1.2.3"]);
    pki.stop().await;
}
