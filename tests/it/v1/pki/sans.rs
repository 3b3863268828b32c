//! Other kinds of subject alternative names, the subject, and the parts of certificates that come from the role.

use serde_json::{Value, json};

use super::foreign::{csr, csr_of_pieces, openssl, openssl_text};
use super::mount::{Leaf, Pki, with};
use signet::x509::extension;
use signet::x509::name;
use signet::x509::pieces::Extensions;

fn localhost(more: Value) -> Value {
    with(&json!({ "common_name": "localhost" }), more)
}

/// A row for each list of a role; the vectors are unit tests in `src/pki/check/names/tests.rs`.
#[actix_web::test]
async fn each_list_of_a_role_applies_to_its_kind_of_name() {
    let pki = Pki::start().await;
    let none = json!({});
    let no_ips = json!({ "allow_ip_sans": false });
    let network = json!({ "allowed_ip_sans_cidr": "1.2.3.4/31" });
    let uris = json!({ "allowed_uri_sans": "http://someuri/*,spiffe://host.com/*" });
    let serials = json!({ "allowed_serial_numbers": "f00*,b4r*" });
    let users = json!({ "allowed_user_ids": "human*" });
    for (role, field, value, rule) in [
        (&no_ips, "ip_sans", "1.2.3.4", "ip_sans: "),
        (&none, "ip_sans", "01.2.3.4", "ip_sans: "),
        (&network, "ip_sans", "1.2.3.4,1.2.3.6", "1.2.3.6"),
        (&none, "uri_sans", "spiffe://host.com/x", "uri_sans: "),
        (&uris, "uri_sans", "http://someuri/abc,spiffe://other.com/x", "spiffe://other.com/x"),
        (&none, "other_sans", "1.2.3;UTF8:x", "other_sans: "),
        (&others(), "other_sans", "1.3.6.1.4.1.311.20.2.4;UTF8:d34g@foobar.com", "not allowed for OID"),
        (&others(), "other_sans", "1.2.3;UTF8:devops@nope.com", "OID 1.2.3 is not allowed"),
        (&none, "serial_number", "x", "serial_number: "),
        (&serials, "serial_number", "foobar", "serial_number: "),
        (&none, "user_ids", "humanoid", "user_id humanoid"),
        (&users, "user_ids", "humanoid,robot", "user_id robot"),
    ] {
        pki.deny(role, localhost(json!({ field: value })), rule).await;
    }
    for (role, field, value, subject, sans) in [
        (&network, "ip_sans", "1.2.3.4,::ffff:1.2.3.5", "", ", IP Address:1.2.3.4, IP Address:1.2.3.5"),
        (
            &uris,
            "uri_sans",
            "spiffe://host.com/a,http://someuri/b",
            "",
            ", URI:spiffe://host.com/a, URI:http://someuri/b",
        ),
        (&serials, "serial_number", "b4rf00", ",serialNumber=b4rf00", ""),
        (&users, "user_ids", "humanoid,human", ",UID=humanoid,UID=human", ""),
    ] {
        let leaf = pki.issue(role, localhost(json!({ field: value }))).await;
        assert_eq!(leaf.subject(), format!("CN=localhost{subject}"), "{field}");
        assert_eq!(leaf.sans().join(", "), format!("DNS:localhost{sans}"), "{field}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn names_of_a_csr_have_the_rules_of_the_role() {
    let pki = Pki::start().await;
    let any = json!({ "allow_any_name": true, "allow_ip_sans": false });
    for (role, subject, sans, rule) in [
        (&json!({ "allowed_ip_sans_cidr": "8.8.8.8/32" }), "/CN=localhost", "subjectAltName = IP:1.2.3.4", "csr: "),
        (&any, "/CN=localhost", "subjectAltName = DNS:1.2.3.4", "csr: 1.2.3.4 is an IP address"),
        (&any, "/CN=localhost", "subjectAltName = DNS:127.1", "csr: 127.1 ends in a number"),
        (&json!({ "allowed_user_ids": "human*" }), "/UID=robot/CN=localhost", "", "user_id robot"),
    ] {
        pki.deny_sign(role, json!({ "csr": csr("ec-256", subject, sans) }), rule).await;
    }
    let reverse = csr("ec-256", "/CN=localhost", "subjectAltName = DNS:4.3.2.1.in-addr.arpa");
    pki.sign(&any, json!({ "csr": reverse })).await;
    let own = json!({ "allowed_ip_sans_cidr": "8.8.8.8/32", "allowed_user_ids": "human*", "use_csr_sans": false });
    // User ids in the request replace those of the CSR.
    for (id, user_ids, subject) in [("humanoid", "", "humanoid"), ("robot", "human", "human")] {
        let csr = csr("ec-256", &format!("/UID={id}/CN=localhost"), "subjectAltName = IP:1.2.3.4");
        let leaf = pki.sign(&own, json!({ "csr": csr, "user_ids": user_ids })).await;
        assert_eq!(
            (leaf.subject(), leaf.sans().join(", ").as_str()),
            (format!("CN=localhost,UID={subject}"), "DNS:localhost")
        );
    }
    pki.stop().await;
}

#[actix_web::test]
async fn other_sans_must_have_the_form_of_their_type() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "allowed_other_sans": "*", "use_csr_sans": true });
    let mail = "1.3.6.1.5.5.7.8.9";
    let service = "1.3.6.1.5.5.7.8.7";
    // An SRVName is an IA5String, although requests can only name UTF8; openssl reads it.
    let named = json!({ "other_sans": format!("{service};UTF8:_imap.a.test,{mail};UTF8:jörg@xn--bcher-kva.test") });
    let leaf = pki.issue(&role, localhost(named)).await;
    let text = openssl_text(&["x509", "-noout", "-ext", "subjectAltName"], leaf.pem.as_bytes());
    assert!(text.contains("SRVName::_imap.a.test,") && text.contains("SmtpUTF8Mailbox::j"), "{text}");
    for (kind, text) in [(service, "imap.a.test"), (service, "_ümap.a.test"), (mail, "x@a.test"), (mail, "ö")] {
        pki.deny(&role, localhost(json!({ "other_sans": format!("{kind};UTF8:{text}") })), "").await;
    }
    for (name, signed) in [
        (format!("{service};IA5:_imap.a.test"), true),
        (format!("{service};UTF8:_imap.a.test"), false),
        (format!("{mail};UTF8:ö@a.test"), true),
        (format!("{mail};IA5:x@a.test"), false),
    ] {
        let csr = csr("ec-256", "/CN=localhost", &format!("subjectAltName = otherName:{name}"));
        let verbatim = pki.app.client.post("pki/sign-verbatim", json!({ "csr": csr })).await;
        assert_eq!(verbatim.status, if signed { 200 } else { 400 }, "{name}: {}", verbatim.text);
        if signed {
            pki.sign(&role, json!({ "csr": csr })).await;
        } else {
            pki.deny_sign(&role, json!({ "csr": csr }), "").await;
        }
    }
    // 1.2.3.4 with a BMPString, complete and cut within its character: openssl could not read the latter.
    for (der, status) in
        [("30:0d:a0:0b:06:03:2a:03:04:a0:04:1e:02:00:78", 200), ("30:0c:a0:0a:06:03:2a:03:04:a0:03:1e:01:78", 400)]
    {
        let csr = csr("ec-256", "/CN=localhost", &format!("subjectAltName = DER:{der}"));
        let verbatim = pki.app.client.post("pki/sign-verbatim", json!({ "csr": csr })).await;
        assert_eq!(verbatim.status, status, "{}", verbatim.text);
    }
    pki.stop().await;
}

const UPN: &str = "1.3.6.1.4.1.311.20.2.3";

fn others() -> Value {
    json!({ "allowed_other_sans": format!("{UPN};UTF8:devops@*,1.3.6.1.4.1.311.20.2.4;utf8:d*e@foobar.com") })
}

#[actix_web::test]
async fn other_sans_of_the_role_are_encoded_as_utf8() {
    let pki = Pki::start().await;
    let one = localhost(json!({ "alt_names": "a.localhost", "other_sans": format!("{UPN};utf8:devops@nope.com") }));
    let leaf = pki.issue(&with(&others(), json!({ "allow_subdomains": true })), one).await;
    assert_eq!(leaf.sans(), ["othername: UPN::devops@nope.com", "DNS:localhost", "DNS:a.localhost"]);
    let two = format!("1.3.6.1.4.1.311.20.2.4;UTF8:d3e@foobar.com,{UPN};utf8:devops@nope.com");
    let leaf = pki.issue(&others(), localhost(json!({ "other_sans": two }))).await;
    let expected =
        ["othername: 1.3.6.1.4.1.311.20.2.4::d3e@foobar.com", "othername: UPN::devops@nope.com", "DNS:localhost"];
    assert_eq!(leaf.sans(), expected);
    // The value is a UTF8String, explicitly tagged.
    let value = &leaf.certificate.extension(&[0x55, 0x1d, 0x11]).unwrap().value;
    let piece = [&[0xa0, 16, 12, 14][..], b"d3e@foobar.com"].concat();
    assert!(value.windows(piece.len()).any(|window| window == piece), "{value:02x?}");
    let any = json!({ "allowed_other_sans": "*" });
    let leaf = pki.issue(&any, localhost(json!({ "other_sans": "1.2.840.1;UTF-8:grüße" }))).await;
    let value = &leaf.certificate.extension(&[0x55, 0x1d, 0x11]).unwrap().value;
    assert!(value.windows(7).any(|window| window == "grüße".as_bytes()), "{value:02x?}");
    pki.stop().await;
}

#[actix_web::test]
async fn certificate_without_common_name_has_a_critical_san() {
    let pki = Pki::start().await;
    pki.deny(&json!({ "require_cn": true, "allow_any_name": true }), json!({ "alt_names": "a.foo.com" }), "require_cn")
        .await;
    let free = json!({ "require_cn": false, "allow_any_name": true, "allowed_other_sans": "*" });
    let leaf = pki.issue(&free, json!({ "alt_names": "a.foo.com" })).await;
    assert_eq!(leaf.subject(), "");
    assert_eq!(leaf.extension("subjectAltName"), Some((true, "DNS:a.foo.com".to_owned())));
    pki.deny(&free, json!({}), "the certificate has no name").await;
    let leaf = pki.issue(&free, json!({ "alt_names": "a.foo.com", "other_sans": "1.2.3;UTF8:x" })).await;
    let expected = (true, "othername: 1.2.3::x, DNS:a.foo.com".to_owned());
    assert_eq!((leaf.subject().as_str(), leaf.extension("subjectAltName")), ("", Some(expected)));
    // With a subject the SAN is not critical.
    let leaf = pki.issue(&free, json!({ "common_name": "a.foo.com" })).await;
    assert_eq!(leaf.extension("subjectAltName"), Some((false, "DNS:a.foo.com".to_owned())));
    pki.stop().await;
}

/// Returns the text of an extension in openssl's output, with its lines joined.
fn printed(leaf: &Leaf, name: &str) -> Option<(bool, String)> {
    leaf.extension(name).map(|(critical, text)| (critical, text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

#[actix_web::test]
async fn certificate_policies_come_from_the_role() {
    let pki = Pki::start().await;
    let issued = async |identifiers: Value| {
        let leaf = pki.issue(&json!({ "policy_identifiers": identifiers }), localhost(json!({}))).await;
        printed(&leaf, "certificatePolicies")
    };
    assert_eq!(issued(json!("1.3.6.1.4.1.7.8")).await, Some((false, "Policy: 1.3.6.1.4.1.7.8".to_owned())));
    let text =
        r#"[{"oid":"1.3.6.1.4.1.7.8","cps":"https://foo.com/cps","notice":"I am a user notice"},{"oid":"1.2.3"}]"#;
    let expected = "Policy: 1.3.6.1.4.1.7.8 CPS: https://foo.com/cps User Notice: Explicit Text: I am a user notice \
                    Policy: 1.2.3";
    assert_eq!(issued(json!(text)).await, Some((false, expected.to_owned())));
    assert_eq!(issued(json!([])).await, None);
    pki.stop().await;
}

#[actix_web::test]
async fn usages_and_basic_constraints_come_from_the_role() {
    let pki = Pki::start().await;
    let shown = async |role: Value, extension: &str| printed(&pki.issue(&role, localhost(json!({}))).await, extension);
    let text = |critical: bool, text: &str| Some((critical, text.to_owned()));
    let constraints = |on: bool| json!({ "basic_constraints_valid_for_non_ca": on });
    assert_eq!(shown(constraints(true), "basicConstraints").await, text(true, "CA:FALSE"));
    assert_eq!(shown(constraints(false), "basicConstraints").await, None);
    let usage = json!({ "ext_key_usage_oids": "1.3.6.1.4.1.311.20.2.2", "server_flag": false });
    let expected = text(false, "TLS Web Client Authentication, Microsoft Smartcard Login");
    assert_eq!(shown(usage, "extendedKeyUsage").await, expected);
    assert_eq!(shown(json!({ "key_usage": [] }), "keyUsage").await, None);
    let usual = text(true, "Digital Signature, Key Agreement");
    assert_eq!(shown(json!({}), "keyUsage").await, usual);
    let purposes = text(false, "TLS Web Server Authentication, TLS Web Client Authentication");
    assert_eq!(shown(json!({}), "extendedKeyUsage").await, purposes);
    assert_eq!(shown(json!({ "server_flag": false, "client_flag": false }), "extendedKeyUsage").await, None);
    let all = json!({ "key_usage": "contentcommitment,CRLSign,KeyAgreement,keyusageEncipherOnly",
        "code_signing_flag": true, "email_protection_flag": true, "ext_key_usage": "TimeStamping" });
    let expected = "Non Repudiation, Key Agreement, CRL Sign, Encipher Only";
    assert_eq!(shown(all.clone(), "keyUsage").await, text(true, expected));
    let expected = "TLS Web Server Authentication, TLS Web Client Authentication, Code Signing, E-mail Protection, \
                    Time Stamping";
    assert_eq!(shown(all, "extendedKeyUsage").await, text(false, expected));
    let mail = json!({ "email_protection_flag": false, "allowed_domains": "mail.com", "allow_bare_domains": true });
    let leaf = pki.issue(&mail, json!({ "common_name": "a@mail.com" })).await;
    assert_eq!(leaf.sans(), ["email:a@mail.com"]);
    assert_eq!(printed(&leaf, "extendedKeyUsage"), purposes);
    pki.stop().await;
}

#[actix_web::test]
async fn subject_attributes_have_a_fixed_order() {
    let pki = Pki::start().await;
    let role = json!({
        "ou": "ou", "organization": "o", "country": "NZ", "locality": "l", "province": "st",
        "street_address": "street", "postal_code": "1234", "allowed_serial_numbers": "*", "allowed_user_ids": "*",
    });
    let leaf = pki.issue(&role, localhost(json!({ "serial_number": "s1", "user_ids": "u1" }))).await;
    let expected = "C=NZ,ST=st,L=l,street=street,postalCode=1234,O=o,OU=ou,CN=localhost,serialNumber=s1,UID=u1";
    assert_eq!(leaf.subject(), expected);
    pki.stop().await;
}

#[actix_web::test]
async fn sans_of_every_kind_in_their_order_from_request_and_csr() {
    let pki = Pki::start().await;
    let role = json!({ "allow_any_name": true, "allowed_uri_sans": "*", "allowed_other_sans": "*" });
    let body = json!({
        "common_name": "a.foo", "alt_names": "m@b.foo,b.foo", "ip_sans": "10.0.0.1,::1", "uri_sans": "urn:x:y",
        "other_sans": "1.2.3;UTF8:o",
    });
    let expected = "othername: 1.2.3::o, DNS:a.foo, DNS:b.foo, email:m@b.foo, IP Address:10.0.0.1, \
                    IP Address:0:0:0:0:0:0:0:1, URI:urn:x:y";
    assert_eq!(pki.issue(&role, body).await.sans().join(", "), expected);
    // With SANs from a CSR the common name is the last DNS name.
    let sans = "subjectAltName = URI:urn:x:y,IP:10.0.0.1,email:m@b.foo,DNS:b.foo,otherName:1.2.3;UTF8:o";
    let leaf = pki.sign(&role, json!({ "csr": csr("ec-256", "/CN=a.foo", sans) })).await;
    let expected = "othername: 1.2.3::o, DNS:b.foo, DNS:a.foo, email:m@b.foo, IP Address:10.0.0.1, URI:urn:x:y";
    assert_eq!(leaf.sans().join(", "), expected);
    pki.stop().await;
}

/// Returns a subjectAltName extension with one name of raw bytes.
fn raw_san(tag: u8, octets: &[u8]) -> Extensions {
    let name = [&[tag, octets.len() as u8], octets].concat();
    let value = [&[0x30, name.len() as u8], &name[..]].concat();
    extension::extension(&[0x55, 0x1d, 0x11], false, &value)
}

#[actix_web::test]
async fn csr_names_are_checked_for_syntax_too() {
    let pki = Pki::start().await;
    let role =
        json!({ "allow_any_name": true, "enforce_hostnames": false, "require_cn": false, "allowed_uri_sans": "*" });
    // One row for each kind; an IP address must have four or sixteen bytes.
    for (tag, octets) in
        [(0x82, &b"a.foo\0.evil.com"[..]), (0x82, b""), (0x81, b"a.foo"), (0x86, b"urn:a\0b"), (0x87, &[1, 2, 3, 4, 5])]
    {
        let csr = csr_of_pieces(&name::name(&[]), &[&raw_san(tag, octets)]);
        // The CSR itself is valid: openssl verifies it.
        openssl(&["req", "-verify", "-noout"], csr.as_bytes());
        pki.deny_sign(&role, json!({ "csr": csr }), "csr: ").await;
    }
    let fine = csr_of_pieces(&name::name(&[]), &[&raw_san(0x82, b"a.foo")]);
    assert_eq!(pki.sign(&role, json!({ "csr": fine })).await.sans(), ["DNS:a.foo"]);
    pki.stop().await;
}
