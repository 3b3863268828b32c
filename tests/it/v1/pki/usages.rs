//! Key usages: defaults that suit the key, and usages that no certificate can have.

use serde_json::json;

use super::foreign::{Files, csr, openssl_text, run};
use super::mount::{Leaf, Pki, with};

const ALL: &str = "Digital Signature, Key Encipherment, Key Agreement";
/// Types of keys, and the default usages that suit them.
const FITTING: [(&str, &str, &str); 4] = [
    ("rsa", "rsa-2048", "Digital Signature, Key Encipherment"),
    ("ec", "ec-256", "Digital Signature, Key Agreement"),
    ("ec", "ec-521", "Digital Signature, Key Agreement"),
    ("ed25519", "ed25519", "Digital Signature"),
];

fn usage(leaf: &Leaf) -> String {
    leaf.extension("keyUsage").unwrap().1
}

#[actix_web::test]
async fn default_key_usages_fit_the_key_and_named_ones_are_kept() {
    let mut pki = Pki::start().await;
    let names = json!(["DigitalSignature", "KeyAgreement", "KeyEncipherment"]);
    let named = json!({ "key_usage": names });
    let anything = |key_type: &str| json!({ "allow_any_name": true, "key_type": key_type });
    for (key_type, kind, fitting) in FITTING {
        let csr = json!({ "csr": csr(kind, "/CN=a.test", "") });
        // With a role of this type, and with one that leaves the type to the request.
        for role in [key_type, "any"] {
            pki.role(&anything(role)).await;
            assert_eq!(pki.get("roles/r").await["key_usage"], names, "the role reads as before");
            let request = json!({ "common_name": "a.test", "key_type": key_type });
            assert_eq!(usage(&pki.ask("issue/r", request).await), fitting, "{kind}");
            assert_eq!(usage(&pki.ask("sign/r", csr.clone()).await), fitting, "{kind}");
        }
        // The default of sign-verbatim is the same for every key.
        for path in ["sign-verbatim", "sign-verbatim/r"] {
            assert_eq!(usage(&pki.ask(path, csr.clone()).await), ALL, "{kind}");
        }
        pki.role(&with(&anything(key_type), named.clone())).await;
        assert_eq!(usage(&pki.ask("sign/r", csr.clone()).await), ALL, "{kind}");
        pki.app.client.patch("pki/roles/r", json!({ "ttl": "1h" })).await;
        assert_eq!(usage(&pki.ask("sign/r", csr.clone()).await), ALL, "{kind}: other fields change nothing");
        pki = Pki { app: pki.app.restart().await };
        assert_eq!(usage(&pki.ask("sign/r", csr.clone()).await), ALL, "{kind}: stored as named");
        let reset = pki.app.client.patch("pki/roles/r", json!({ "key_usage": null })).await;
        assert_eq!(reset.body["data"]["key_usage"], names);
        assert_eq!(usage(&pki.ask("sign/r", csr.clone()).await), fitting, "{kind}: null is the default");
    }
    pki.stop().await;
}

/// A role is validated against the rules for certificates when it is written, not only at the first request. The rules
/// are unit tests in `src/pki/check/role_feasibility.rs`.
#[actix_web::test]
async fn role_that_can_issue_no_certificate_warns() {
    let pki = Pki::start().await;
    for (usage, rule) in [
        ("DigitalSignature,KeyUsageCertSign", "keyCertSign needs cA TRUE"),
        // Without keyAgreement the narrower bits have no meaning, and verifiers reject them.
        ("DigitalSignature,DecipherOnly", "encipherOnly and decipherOnly need keyAgreement"),
    ] {
        let warning = pki.role(&json!({ "key_usage": usage })).await;
        let begin = "role: no certificate can be issued under this role: ";
        assert!(warning.contains(begin) && warning.contains(rule), "{usage}: {warning}");
        pki.refused("issue/r", json!({ "common_name": "localhost" }), rule).await;
    }
    pki.issue(&json!({ "key_usage": "CRLSign" }), json!({ "common_name": "localhost" })).await;
    pki.stop().await;
}

#[actix_web::test]
async fn time_stamping_role_works_with_openssl_ts() {
    let pki = Pki::start().await;
    let alone = json!({
        "allow_any_name": true, "server_flag": false, "client_flag": false, "ext_key_usage": "TimeStamping",
    });
    for key_type in ["ec", "rsa"] {
        let role = with(&alone, json!({ "key_type": key_type }));
        assert_eq!(pki.role(&role).await, "");
        let leaf = pki.ask("issue/r", json!({ "common_name": "tsa.example.test" })).await;
        // RFC 3161 section 2.3: critical, and no other usage.
        assert_eq!(leaf.extension("extendedKeyUsage").unwrap(), (true, "Time Stamping".to_owned()));
        let files = Files::new();
        let [root, tsa, key, data, config, query, reply, serial] =
            ["root.pem", "tsa.pem", "key.pem", "data", "tsa.cnf", "query", "reply", "serial"]
                .map(|name| files.path(name).to_str().unwrap().to_owned());
        files.write("root.pem", pki.default_pem().await.as_bytes());
        files.write("tsa.pem", leaf.pem.as_bytes());
        files.write("key.pem", leaf.data()["private_key"].as_str().unwrap().as_bytes());
        files.write("data", b"some bytes");
        let section = format!(
            "[tsa]\ndefault_tsa = t\n[t]\nserial = {serial}\ndefault_policy = 1.2.3.4\ndigests = sha256\nsigner_digest = sha256\n"
        );
        files.write("tsa.cnf", section.as_bytes());
        let verified = openssl_text(&["verify", "-purpose", "timestampsign", "-CAfile", &root, &tsa], b"");
        assert!(verified.ends_with("OK\n"), "{verified}");
        let asking = ["ts", "-query", "-data", &data, "-sha256", "-cert", "-config", &config, "-out", &query];
        openssl_text(&asking, b"");
        let replying = ["ts", "-reply", "-config", &config, "-queryfile", &query, "-signer", &tsa, "-inkey", &key];
        openssl_text(&[&replying[..], &["-out", &reply]].concat(), b"");
        let verify = ["ts", "-verify", "-queryfile", &query, "-in", &reply, "-CAfile", &root];
        let output = run("openssl", &verify, b"");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mixed = pki.role(&with(&alone, json!({ "client_flag": true }))).await;
    assert!(mixed.contains("certificates with TimeStamping and other usages"), "{mixed}");
    let leaf = pki.ask("issue/r", json!({ "common_name": "tsa.example.test" })).await;
    assert!(!leaf.extension("extendedKeyUsage").unwrap().0);
    // sign-verbatim copies the extension of the CSR or the request.
    for (extensions, asked, told) in [
        ("extendedKeyUsage=critical,timeStamping", "", false),
        ("extendedKeyUsage=timeStamping", "", true),
        ("", "TimeStamping", false),
        ("", "TimeStamping,ClientAuth", true),
    ] {
        let body = json!({ "csr": csr("ec-256", "/CN=tsa.test", extensions), "ext_key_usage": asked });
        let warnings = pki.ask("sign-verbatim", body).await.answer.warnings();
        assert_eq!(warnings.contains("verifiers of time stamps"), told, "{extensions} {asked}: {warnings}");
    }
    let usages = pki.role(&with(&alone, json!({ "key_usage": "DigitalSignature,KeyAgreement" }))).await;
    assert!(usages.contains("key_usage: verifiers of time stamps"), "{usages}");
    pki.stop().await;
}
