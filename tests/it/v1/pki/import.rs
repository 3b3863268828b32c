//! Import of certificates and keys.

use serde_json::{Value, json};

use super::foreign::{self, CA, Ca, csr, new_key, openssl_text, openssl_verifies_chain};
use super::mount::{Leaf, Pki, parse, text};

const PATHS: [(&str, &str); 4] = [
    ("issuers/import/bundle", "pem_bundle"),
    ("issuers/import/cert", "pem_bundle"),
    ("config/ca", "pem_bundle"),
    ("intermediate/set-signed", "certificate"),
];

async fn import(pki: &Pki, text: &str) -> Value {
    pki.data("issuers/import/bundle", json!({ "pem_bundle": text })).await
}

fn ids(data: &Value, member: &str) -> Vec<String> {
    serde_json::from_value(data[member].clone()).unwrap()
}

/// Returns the numbers of new issuers and new keys.
fn new_ones(data: &Value) -> [usize; 2] {
    ["imported_issuers", "imported_keys"].map(|member| ids(data, member).len())
}

/// Issues a leaf of the default issuer that ends before every CA of these tests.
async fn short_leaf(pki: &Pki) -> Leaf {
    pki.issue(&json!({}), json!({ "common_name": "localhost", "ttl": "1h" })).await
}

#[actix_web::test]
async fn importing_a_bundle_twice_changes_nothing() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Once");
    let first = import(&pki, &ca.bundle()).await;
    assert_eq!(new_ones(&first), [1, 1]);
    let issuer = ids(&first, "imported_issuers");
    let key = ids(&first, "imported_keys");
    assert_eq!((&first["existing_issuers"], &first["existing_keys"]), (&json!([]), &json!([])));
    let crl = pki.crl("default").await;
    let again = pki.post("config/ca", json!({ "pem_bundle": ca.bundle() })).await;
    let expected = json!({ "imported_issuers": [], "imported_keys": [], "existing_issuers": issuer, "existing_keys": key,
        "mapping": { &issuer[0]: key[0] } });
    assert_eq!(again.body["data"], expected);
    assert_eq!(again.warnings(), "");
    assert_eq!(pki.crl("default").await.der, crl.der, "nothing changed");
    let other = Ca::root("/CN=Twice");
    let thrice = import(&pki, &[other.bundle(), other.bundle(), other.bundle()].join("\n")).await;
    assert_eq!(new_ones(&thrice), [1, 1]);
    assert_eq!((&thrice["existing_issuers"], &thrice["existing_keys"]), (&json!([]), &json!([])));
    assert_eq!((pki.list("issuers").await.len(), pki.list("keys").await.len()), (2, 2));
    pki.stop().await;
}

#[actix_web::test]
async fn import_takes_only_ca_certificates_and_expected_keys() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=CA");
    let leaf = Ca::root_with(new_key("ec-256"), "/CN=leaf", "basicConstraints=CA:FALSE", &[]);
    let version_1 = ca.signs(&csr("ec-256", "/CN=old", ""), "", &[]);
    for (path, field) in PATHS {
        for (text, rule) in [
            (leaf.pem.clone(), "block 0: refusing to import non-CA certificate"),
            (version_1.clone(), "refusing to import non-CA certificate"),
            // A valid certificate before it is not imported either; `refused` checks that.
            (format!("{}\n{}", ca.pem, leaf.pem), "block 1: refusing to import non-CA certificate"),
            ("/etc/ssl/ca.pem".to_owned(), "too short; was a path passed?"),
            (" ".repeat(200), "no data"),
            ("text ".repeat(40), "invalid PEM block at index 0"),
            (ca.pem[..ca.pem.len() - 10].to_owned(), "invalid PEM block at index 0"),
            (ca.pem.replace('\n', "\\n"), "invalid PEM block at index 0"),
            (csr("ec-256", "/CN=csr", ""), "block 0: unsupported PEM block type"),
        ] {
            let answer = pki.fails(path, json!({ field: text }), 400, rule).await;
            assert!(answer.error().contains(&format!("{field}: ")), "{path}: {}", answer.text);
        }
        let other = if field == "certificate" { "pem_bundle" } else { "certificate" };
        for body in [json!({}), json!({ field: null }), json!({ other: ca.pem })] {
            pki.refused(path, body, &format!("{field}: must be given")).await;
        }
    }
    for (path, field) in [("issuers/import/cert", "pem_bundle"), ("intermediate/set-signed", "certificate")] {
        pki.refused(path, json!({ field: ca.bundle() }), "private keys are not accepted here").await;
    }
    // The parameter of the other path causes a warning.
    let body = json!({ "certificate": ca.pem, "pem_bundle": "x" });
    pki.warns("intermediate/set-signed", body, "pem_bundle").await;
    pki.stop().await;
}

#[actix_web::test]
async fn import_reads_pem_as_tools_write_it() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=CA");
    let ec = openssl_text(&["ecparam", "-name", "prime256v1"], b"");
    assert!(ec.contains("EC PARAMETERS"));
    let text = format!("subject=CN = CA\nissuer=CN = CA\n{}\n\nthe key follows\n{ec}{}\n\n  \n", ca.pem, ca.key);
    let data = import(&pki, &text).await;
    assert_eq!(new_ones(&data), [1, 1]);
    // CRLF, as in files of other systems.
    let other = Ca::root("/CN=CRLF");
    let data = import(&pki, &other.bundle().replace('\n', "\r\n")).await;
    assert_eq!(data["mapping"].as_object().unwrap().values().next(), data["imported_keys"].get(0));
    let crl = signet::x509::pem::encode("X509 CRL", &pki.crl("default").await.der);
    let third = Ca::root("/CN=CRL");
    let data = import(&pki, &format!("{crl}\n{}", third.pem)).await;
    assert_eq!((new_ones(&data), &data["imported_crls"][0]["entries"]), ([1, 0], &json!(0)));
    // Text after the last block is allowed like text before it, unless it is part of a block.
    let rule = "pem_bundle: invalid PEM block at index 1";
    let late = Ca::root("/CN=Late");
    for rest in ["-----BEGIN CERTIFICATE----", "BEGIN CERTIFICATE", "-----END CERTIFICATE-----"] {
        let cut = json!({ "pem_bundle": format!("{}\n{rest}", late.pem) });
        pki.refused("issuers/import/bundle", cut, rule).await;
    }
    let data = import(&pki, &format!("{}\nsigned\n", late.bundle())).await;
    assert_eq!(new_ones(&data), [1, 1]);
    let key = format!("{}\nthe key of nobody\n", new_key("ec-256"));
    assert!(pki.data("keys/import", json!({ "pem_bundle": key })).await["key_id"].is_string());
    pki.refused("config/ca", json!({ "pem_bundle": crl }), "neither a certificate nor a private key").await;
    let [one, two, three] = ["/CN=One", "/CN=Two", "/CN=Three"].map(Ca::root);
    // A byte order mark, CRLF, END and BEGIN on one line, no newline at the end.
    let marked = format!("\u{feff}{}\r\n{}", one.pem.replace('\n', "\r\n"), one.key.trim());
    assert_eq!(new_ones(&import(&pki, &marked).await), [1, 1]);
    assert_eq!(new_ones(&import(&pki, &format!("{}{}", two.pem, three.pem)).await), [2, 0]);
    for damaged in [
        format!("> {}", one.pem.replace('\n', "\n> ")),
        one.pem.replace("-----", "\u{2014}\u{2013}"),
        one.pem.replace("-----BEGIN", "----BEGIN"),
        one.pem.lines().skip(1).collect::<Vec<_>>().join("\n"),
    ] {
        for (path, field) in PATHS {
            let text = format!("{damaged}\n{}", two.pem);
            pki.refused(path, json!({ field: text }), "invalid PEM block at index 0").await;
        }
    }
    // The server's own files, concatenated as users do.
    let mut joined = String::new();
    for path in ["ca/pem", "ca_chain", "crl/pem", "cert/ca/raw/pem", "issuer/default/pem", "issuer/default/crl/pem"] {
        let text = pki.app.client.get(&format!("pki/{path}")).await.text;
        assert!(text.ends_with("-----\n"), "{path}: {text}");
        joined += &text;
    }
    let files = foreign::Files::new();
    openssl_text(&["storeutl", "-noout", "-certs", &files.save("all.pem", &joined)], b"");
    assert_eq!(ids(&import(&pki, &joined).await, "existing_issuers").len(), 1);
    pki.stop().await;
}

#[actix_web::test]
async fn unsupported_keys_and_weak_signatures_are_rejected() {
    let pki = Pki::empty().await;
    let pss = openssl_text(&["genpkey", "-quiet", "-algorithm", "RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048"], b"");
    let ed448 = openssl_text(&["genpkey", "-algorithm", "ed448"], b"");
    for (key, of_certificate, of_key) in [
        (pss, "unsupported public key", "unsupported kind of key"),
        (ed448, "unsupported public key", "unsupported kind of key"),
        (new_key("curve-secp256k1"), "unsupported public key", "unsupported kind of key"),
        (new_key("rsa-1024"), "RSA keys below 2048 bits", "RSA keys below 2048 bits"),
        (new_key("ec-224"), "a P-224 key cannot sign certificates", "a P-224 key cannot sign certificates"),
    ] {
        let ca = Ca::root_with(key, "/CN=unsupported", CA, &[]);
        pki.refused("config/ca", json!({ "pem_bundle": ca.pem }), of_certificate).await;
        pki.refused("config/ca", json!({ "pem_bundle": ca.key }), of_key).await;
    }
    let rsa = new_key("rsa-2048");
    let above = Ca::root("/CN=above");
    let ec = csr("ec-256", "/CN=below", "");
    for (digest, rule) in [("-sha1", "SHA-1 signatures are not accepted"), ("-md5", "MD5 signatures are not accepted")]
    {
        let above = Ca::root_with(rsa.clone(), "/CN=above", CA, &[]);
        let weak = above.signs(&ec, CA, &[digest]);
        pki.refused("issuers/import/cert", json!({ "pem_bundle": weak }), rule).await;
    }
    let weak = above.signs(&ec, CA, &["-sha1"]);
    pki.refused("intermediate/set-signed", json!({ "certificate": weak }), "SHA-1 signatures are not accepted").await;
    let encrypted = openssl_text(&["pkey", "-aes256", "-passout", "pass:word"], rsa.as_bytes());
    pki.refused("config/ca", json!({ "pem_bundle": encrypted }), "encrypted private keys are not supported").await;
    // A certificate that is signed with RSASSA-PSS is allowed.
    let pss_signed = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"];
    let good = Ca::root_with(rsa, "/CN=good", CA, &pss_signed);
    import(&pki, &good.bundle()).await;
    let leaf = short_leaf(&pki).await;
    openssl_verifies_chain(&good.pem, &[], &leaf.pem).unwrap();
    pki.stop().await;
}

#[actix_web::test]
async fn import_root_with_weak_self_signature_warns() {
    for (kind, digest, warning) in [
        ("rsa-2048", "-sha1", "SHA-1 signatures are not accepted; imported, because"),
        ("rsa-2048", "-md5", "MD5 signatures are not accepted; imported, because"),
        ("ec-256", "-sha1", "SHA-1 signatures are not accepted; imported, because"),
        ("ec-384", "-sha1", "SHA-1 signatures are not accepted; imported, because"),
    ] {
        let pki = Pki::empty().await;
        // Without an authority key identifier, as in old roots, only the signature shows that it is self-signed.
        let extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n\
            subjectKeyIdentifier=hash\nauthorityKeyIdentifier=none";
        let root = Ca::root_with(new_key(kind), "/CN=Old root", extensions, &[digest]);
        pki.warns("issuers/import/bundle", json!({ "pem_bundle": root.bundle() }), warning).await;
        let leaf = short_leaf(&pki).await;
        let files = foreign::Files::new();
        let ca = files.save("ca.pem", &root.pem);
        openssl_text(&["verify", "-CAfile", &ca, &files.save("leaf.pem", &leaf.pem)], b"");
        assert!(!foreign::signature_algorithm(&leaf.pem).to_lowercase().contains("sha1"));
        assert!(pki.crl("default").await.is_signed_by(&root.pem));
        // It is recognized as a root when roots are removed from the chain.
        let request = json!({ "common_name": "localhost", "remove_roots_from_chain": true });
        assert_eq!(pki.data("issue/r", request).await["ca_chain"], json!([]));
        let below = root.intermediate("/CN=Below", &[]);
        let id = pki.import_one(&format!("{}\n{}", below.bundle(), root.pem)).await;
        assert_eq!(pki.get(&format!("issuer/{id}")).await["ca_chain"].as_array().unwrap().len(), 2);
        pki.stop().await;
    }
}

#[actix_web::test]
async fn import_set_signed_takes_chain_with_sha1_root() {
    let pki = Pki::empty().await;
    let root = Ca::root_with(new_key("rsa-2048"), "/CN=Old root", CA, &["-sha1"]);
    let below = json!({ "common_name": "Below", "key_type": "ec" });
    let below = pki.data("intermediate/generate/internal", below).await;
    let signed = root.signs(text(&below, "csr"), CA, &[]);
    let body = json!({ "certificate": format!("{signed}\n{}", root.pem) });
    let warning = "SHA-1 signatures are not accepted; imported, because";
    let answer = pki.warns("intermediate/set-signed", body, warning).await;
    assert_eq!(ids(&answer.body["data"], "imported_issuers").len(), 2);
    let leaf = short_leaf(&pki).await;
    openssl_verifies_chain(&root.pem, &[&signed], &leaf.pem).unwrap();
    // A certificate of this CA that is signed over SHA-1 can be revoked by its PEM.
    let old = root.signs(&csr("ec-256", "/CN=old", ""), "", &["-sha1", "-set_serial", "77"]);
    pki.post("revoke", json!({ "certificate": old })).await;
    assert!(pki.list("certs/revoked").await.contains(&"4d".to_owned()));
    let forged = Ca::root_with(new_key("rsa-2048"), "/CN=Old root", CA, &["-sha1"]);
    let text = forged.pem.replace("A", "B");
    assert_eq!(pki.app.client.post("pki/issuers/import/cert", json!({ "pem_bundle": text })).await.status, 400);
    pki.stop().await;
}

#[actix_web::test]
async fn issuer_without_crl_sign_usage_cannot_sign_crls() {
    let pki = Pki::start().await;
    let extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash";
    let ca = Ca::root_with(new_key("ec-256"), "/CN=no CRLs", extensions, &[]);
    let body = json!({ "pem_bundle": ca.bundle() });
    let answer = pki.warns("issuers/import/bundle", body, "may not sign CRLs").await;
    let id = ids(&answer.body["data"], "imported_issuers").remove(0);
    let path = format!("issuer/{id}");
    let usage = "issuing-certificates,ocsp-signing,read-only";
    assert_eq!(pki.get(&path).await["usage"], usage);
    pki.refused(&path, json!({ "usage": "crl-signing" }), "usage: crl-signing needs cRLSign").await;
    assert_eq!(pki.data(&path, json!({})).await["usage"], usage);
    // Without keyUsage, every use is allowed.
    let free = Ca::root_with(new_key("ec-256"), "/CN=free", "basicConstraints=critical,CA:TRUE", &[]);
    let id = pki.import_one(&free.bundle()).await;
    let usage = "crl-signing,issuing-certificates,ocsp-signing,read-only";
    assert_eq!(pki.get(&format!("issuer/{id}")).await["usage"], usage);
    assert!(pki.crl(&id).await.is_signed_by(&free.pem));
    pki.stop().await;
}

#[actix_web::test]
async fn first_issuer_with_a_key_becomes_the_default() {
    let pki = Pki::empty().await;
    let bare = Ca::root("/CN=bare");
    let keyed = Ca::root("/CN=keyed");
    import(&pki, &bare.pem).await;
    let default = async || pki.get("config/issuers").await["default"].clone();
    assert_eq!(default().await, "");
    assert_eq!(pki.app.client.get("pki/ca/pem").await.status, 204);
    let id = pki.import_one(&keyed.bundle()).await;
    assert_eq!(default().await, id);
    // Later imports keep the default …
    import(&pki, &Ca::root("/CN=third").bundle()).await;
    assert_eq!(default().await, id);
    // … unless it follows the latest issuer: a single one, with a key.
    pki.post("config/issuers", json!({ "default_follows_latest_issuer": true })).await;
    import(&pki, &Ca::root("/CN=fourth").pem).await;
    assert_eq!(default().await, id);
    let two = [Ca::root("/CN=fifth").bundle(), Ca::root("/CN=sixth").bundle()].join("\n");
    pki.warns("config/ca", json!({ "pem_bundle": two }), "several issuers imported").await;
    assert_eq!(default().await, id);
    let latest = pki.import_one(&Ca::root("/CN=seventh").bundle()).await;
    assert_eq!(default().await, latest);
    pki.stop().await;
}

#[actix_web::test]
async fn the_parts_of_a_bundle_find_each_other() {
    let pki = Pki::empty().await;
    let root = Ca::root("/CN=Root");
    let one = root.intermediate("/CN=One", &[]);
    let two = root.intermediate("/CN=Two", &[]);
    let text = [&two.key, &root.pem, &one.pem, &two.pem, &one.key].map(|t| t.trim()).join("\n");
    let data = import(&pki, &text).await;
    let issuers = ids(&data, "imported_issuers");
    let keys = ids(&data, "imported_keys");
    assert_eq!(data["mapping"], json!({ &issuers[0]: "", &issuers[1]: keys[1], &issuers[2]: keys[0] }));
    assert_eq!(pki.get("config/issuers").await["default"], issuers[1], "the first with a key");
    assert_eq!(pki.get("config/keys").await["default"], keys[0]);
    pki.role(&json!({})).await;
    for (issuer, ca) in [(&issuers[1], &one), (&issuers[2], &two)] {
        let leaf = pki.leaf_of(issuer).await;
        openssl_verifies_chain(&root.pem, &[&ca.pem], &leaf.pem).unwrap();
        assert!(pki.crl(issuer).await.is_signed_by(&ca.pem));
    }
    let body = json!({ "common_name": "localhost", "ttl": "1h" });
    pki.refused(&format!("issuer/{}/issue/r", issuers[0]), body, "its private key is not in this mount").await;
    // An operator may select a default without a key; imports then warn about it.
    pki.post("config/issuers", json!({ "default": issuers[0] })).await;
    let other = json!({ "pem_bundle": Ca::root("/CN=Other").pem });
    pki.warns("issuers/import/cert", other, "default issuer has no private key").await;
    pki.stop().await;
}

#[actix_web::test]
async fn a_serial_number_names_one_certificate_of_an_issuer() {
    let pki = Pki::empty().await;
    let key = new_key("ec-256");
    let root = Ca::root_with(key.clone(), "/CN=Root", CA, &["-set_serial", "1"]);
    import(&pki, &root.bundle()).await;
    // Name and number identify a certificate, so a second one with both is rejected.
    let renewed = Ca::root_with(key, "/CN=Root", CA, &["-set_serial", "1", "-sha384"]);
    let rule = "serial number 01 collides with another certificate";
    pki.refused("issuers/import/cert", json!({ "pem_bundle": renewed.pem }), rule).await;
    // Another issuer may use the same number.
    let other = Ca::root_with(new_key("ec-256"), "/CN=Other", CA, &["-set_serial", "1"]);
    import(&pki, &other.pem).await;
    // An external leaf that was revoked by its PEM reserves its number as well.
    let csr = csr("ec-384", "/CN=leaf", "");
    let leaf = root.signs(&csr, "basicConstraints=CA:FALSE", &["-set_serial", "2"]);
    pki.post("revoke", json!({ "certificate": leaf })).await;
    let below = root.intermediate("/CN=Below", &["-set_serial", "2"]);
    pki.refused("config/ca", json!({ "pem_bundle": below.bundle() }), "serial number 02 collides with another").await;
    // A leaf may have the number of its issuer's certificate, and it can be revoked.
    let below = root.intermediate("/CN=Below", &["-set_serial", "3"]);
    let id = pki.import_one(&below.bundle()).await;
    let leaf = below.signs(&csr, "basicConstraints=CA:FALSE", &["-set_serial", "3"]);
    assert_eq!(parse(&leaf).serial(), parse(&below.pem).serial());
    pki.post("revoke", json!({ "certificate": leaf })).await;
    assert_eq!(pki.crl(&id).await.serials(), ["03"]);
    assert_eq!(pki.get("cert/03").await["certificate"], leaf);
    assert_eq!(pki.get(&format!("issuer/{id}")).await["revoked"], false);
    pki.stop().await;
}

#[actix_web::test]
async fn ca_with_malformed_extension_is_imported_without_key_only() {
    let pki = Pki::empty().await;
    for (extension, name) in [
        ("nameConstraints=critical,DER:3000", "nameConstraints"),
        ("extendedKeyUsage=DER:0500", "extKeyUsage"),
        ("subjectAltName=DER:3004820261ff", "subjectAltName"),
        ("authorityInfoAccess=DER:0500", "authorityInfoAccess"),
        ("policyConstraints=critical,DER:3000", "policyConstraints"),
        ("1.3.6.1.5.5.7.1.14=DER:0500", "proxyCertInfo"),
    ] {
        let ca = Ca::root_with(new_key("ec-256"), "/CN=Odd", &format!("{CA}\n{extension}"), &[]);
        let rule = format!("pem_bundle: certificate: {name}: ");
        for path in ["config/ca", "issuers/import/bundle"] {
            pki.refused(path, json!({ "pem_bundle": ca.bundle() }), &rule).await;
        }
        let warning = format!("certificate: {name}: ");
        pki.warns("issuers/import/cert", json!({ "pem_bundle": ca.pem }), &warning).await;
        let rule = format!("whose certificate is not accepted: certificate: {name}: ");
        pki.refused("keys/import", json!({ "pem_bundle": ca.key }), &rule).await;
    }
    let unusual = Ca::root_with(new_key("ec-256"), "/CN=Unusual", &format!("{CA}\nsubjectAltName=DER:3000"), &[]);
    let body = json!({ "pem_bundle": unusual.bundle() });
    pki.warns("config/ca", body, "certificate: subjectAltName: must not be empty").await;
    pki.stop().await;
}

#[actix_web::test]
async fn different_key_identifier_for_an_existing_key_warns() {
    let pki = Pki::empty().await;
    let basic = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign";
    let with_id = |subject: &str, id: &str| {
        Ca::root_with(foreign::key("ec-256"), subject, &format!("{basic}\nsubjectKeyIdentifier={id}"), &[]).bundle()
    };
    for (subject, id, told) in [
        ("/CN=Twin", "hash", false),
        // Renewed with its key identifier, with another name, and with another key identifier.
        ("/CN=Twin", "hash", false),
        ("/CN=No twin", "01:02", false),
        ("/CN=Twin", "01:02:03", true),
    ] {
        let answer = pki.post("issuers/import/bundle", json!({ "pem_bundle": with_id(subject, id) })).await;
        let told_of = answer.warnings().contains("different subjectKeyIdentifiers: they share one CRL");
        assert_eq!(told_of, told, "{subject} {id}: {}", answer.text);
    }
    pki.stop().await;
}
