//! Valid and invalid values for each rule of the profile.

use proptest::prelude::*;

use super::*;
use crate::x509::extension::{self, CertificatePolicy, NameConstraints, SubjectAltNames};
use crate::x509::name::{self as directory_name, Attribute, rdn};
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::usage::KeyUsage;
use crate::x509::writer::build;

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    build(tag, 0, |w| parts.iter().for_each(|part| w.raw(part)))
}

/// The encoded OID 1.2.3.
const OID_1_2_3: &[u8] = &[6, 2, 42, 3];
/// The encoded OID 1.2.2147483648, which Go cannot read.
const OID_WITH_LARGE_ARC: &[u8] = &[6, 6, 42, 0x88, 0x80, 0x80, 0x80, 0];

fn dns_name(text: &str) -> Vec<u8> {
    tlv(0x82, &[text.as_bytes()])
}

fn uri_name(text: &str) -> Vec<u8> {
    tlv(0x86, &[text.as_bytes()])
}

fn common_name(tag: u8, value: &[u8]) -> Vec<u8> {
    let attribute = tlv(SEQUENCE, &[&[6, 3, 0x55, 4, 3], &tlv(tag, &[value])]);
    tlv(SEQUENCE, &[&tlv(SET, &[&attribute])])
}

/// Returns the rule that a value violates, or an empty string.
fn violated_rule(known: Option<ExtensionProfile>, value: &[u8]) -> String {
    let known = known.unwrap();
    let critical = matches!(known.critical, CriticalRule::Always);
    known.validate("field", critical, value).map_or_else(|e| e.text().to_owned(), |()| String::new())
}

/// Checks that `good` values are accepted, and `bad` ones are rejected with their rules.
fn check_values(known: fn(&[u8]) -> Option<ExtensionProfile>, oid: &[u8], good: &[Vec<u8>], bad: &[(Vec<u8>, &str)]) {
    let name = known(oid).unwrap().name;
    for value in good {
        assert_eq!(violated_rule(known(oid), value), "", "{name} {value:02x?}");
    }
    for (value, rule) in bad {
        let found = violated_rule(known(oid), value);
        assert!(
            found.starts_with(&format!("field: {name}: ")) && found.contains(rule),
            "{value:02x?}: {rule}: {found}"
        );
    }
    for value in [&[][..], b"junk", &[0x30, 0x80, 0, 0], &[2, 1]] {
        assert_ne!(violated_rule(known(oid), value), "", "{name} {value:02x?}");
    }
    for value in good {
        assert_ne!(
            violated_rule(known(oid), &[&value[..], &[0]].concat()),
            "",
            "{name} with something after {value:02x?}"
        );
    }
}

#[test]
fn directory_names_need_der_and_supported_string_types() {
    for (tag, value) in [
        (0x0c, "bücher".as_bytes()),
        (0x13, b"Example (Test), Inc. 1/2:'+-=?"),
        (0x14, b"a@b"),
        (0x1e, &[0, b'a', 0, 0xfc]),
    ] {
        assert_eq!(validate_directory_name(&common_name(tag, value)), Ok(()), "{tag:#x} {value:02x?}");
    }
    for (tag, value, rule) in [
        (0x13, &b"a@b"[..], "its type does not allow"),
        (0x13, b"a*b", "its type does not allow"),
        (0x13, b"a&b", "its type does not allow"),
        (0x12, b"a", "its type does not allow"),
        (0x14, b"B\xfccher", "its type does not allow"),
        (0x16, b"\xfc", "its type does not allow"),
        (0x0c, b"\xfc", "its type does not allow"),
        (0x1e, &[0xd8, 0], "its type does not allow"),
        (0x1e, &[0xff, 0xfe], "its type does not allow"),
        (0x1e, &[0], "its type does not allow"),
        (0x0c, b"a\0b", "control characters"),
        (0x0c, "\u{85}".as_bytes(), "control characters"),
        (0x16, b"a\nb", "control characters"),
        (0x1e, &[0, 0], "control characters"),
        (0x1c, &[0, 0, 0, b'a'], "unsupported string type"),
        (0x1a, b"a", "unsupported string type"),
        (0x01, &[1], "unsupported string type"),
        (0x03, &[0, 1], "unsupported string type"),
        (0x2c, &[0x0c, 1, b'a'], "unsupported string type"),
        (0x33, &[0x13, 1, b'a'], "unsupported string type"),
        (0x0c, b"", "is empty"),
        (0x12, b"", "is empty"),
        (0x13, b"", "is empty"),
        (0x14, b"", "is empty"),
        (0x16, b"", "is empty"),
        (0x1e, b"", "is empty"),
        (0x12, b"0 9", "wrong string type"),
        (0x16, b"a@b", "wrong string type"),
    ] {
        let found = validate_directory_name(&common_name(tag, value)).unwrap_err().0;
        assert!(found.contains(rule), "{tag:#x} {value:02x?}: {found}");
    }
    let [a, b] = ["a", "b"].map(|text| tlv(SEQUENCE, &[&[6, 3, 0x55, 4, 3], &tlv(0x0c, &[text.as_bytes()])]));
    let of = |attributes: &[&[u8]]| validate_directory_name(&tlv(SEQUENCE, &[&tlv(SET, attributes)]));
    assert_eq!(of(&[&a, &b]), Ok(()));
    assert!(of(&[&b, &a]).unwrap_err().0.contains("out of order"));
    assert!(of(&[&a, &a]).unwrap_err().0.contains("repeated"));
    assert!(of(&[]).is_err());
    assert!(of(&[&tlv(SEQUENCE, &[OID_WITH_LARGE_ARC, &[0x0c, 1, b'a']])]).unwrap_err().0.contains("2^28"));
    for (oid, tag, fits) in [
        (Attribute::EmailAddress.oid(), 0x16, true),
        (Attribute::DomainComponent.oid(), 0x16, true),
        (&[0x2a, 3], 0x16, true),
        (&[0x2a, 3], 0x12, true),
        // x121Address is a NumericString.
        (&[0x55, 4, 24], 0x12, true),
        (Attribute::SerialNumber.oid(), 0x12, false),
        (Attribute::Country.oid(), 0x16, false),
        (&[0x55, 4, 97], 0x16, false),
        (Attribute::SerialNumber.oid(), 0x13, true),
    ] {
        let found = of(&[&tlv(SEQUENCE, &[&tlv(6, &[oid]), &tlv(tag, &[b"12"])])]);
        assert_eq!(found.is_ok(), fits, "{oid:02x?} {tag:#x}: {found:?}");
    }
    // Values of unknown types are not restricted, and RFC 4519 2.4 has no minimum length.
    for free in [OID_1_2_3, &tlv(6, &[Attribute::DomainComponent.oid()])] {
        assert_eq!(of(&[&tlv(SEQUENCE, &[free, &[0x16, 0]])]), Ok(()));
    }
    for bound in [Attribute::EmailAddress, Attribute::UserId, Attribute::StreetAddress] {
        let empty = of(&[&tlv(SEQUENCE, &[&tlv(6, &[bound.oid()]), &[0x16, 0]])]);
        assert!(empty.unwrap_err().0.contains("is empty"), "{bound:?}");
    }
    assert!(of(&[&tlv(SEQUENCE, &[OID_1_2_3, &[0x0c, 1, b'a'], &[5, 0]])]).unwrap_err().0.contains("trailing"));
    for no_name in [&[0x31, 2, 5, 0][..], &[0x30, 2, 5, 0], b"x", b""] {
        assert!(validate_directory_name(no_name).is_err(), "{no_name:?}");
    }
}

fn check_texts(check: fn(&[u8]) -> DerResult<()>, good: &[&str], bad: &[&str]) {
    for text in good {
        assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
    }
    for text in bad {
        assert!(check(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn name_texts_are_validated() {
    let long = format!("{}.test", "a".repeat(64));
    check_texts(
        text::validate_dns_name,
        &["a", "A.foo", "a_b.c", "*.a.test", "a*.test", "*", "1.2.3.4", "xn--bcher-kva.test"],
        &[
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a.*",
            "**.a",
            "a*b*.c",
            "a@b",
            "a\0b",
            "b\u{fc}cher",
            &long,
            &"a.".repeat(127),
            "http://a",
        ],
    );
    check_texts(
        text::validate_mailbox,
        &["a@b", "a.b+c@a.test", "\"a b\\\"\"@c", "a@[10.0.0.1]", "a@[IPv6:::1]", "!#$%&'*/=?^_`{|}~-@b"],
        &[
            "",
            "a",
            "@",
            "a@",
            "@a",
            "a@@b",
            "a b@c",
            "a@b..c",
            ".a@b",
            "a..b@c",
            "\"a\"\"@b",
            "\"@b",
            "a@[x]",
            "a@b.",
            "\"\\\"@b",
        ],
    );
    let uris = [
        "urn:a:b",
        "http://a.test/%20?q#f",
        "spiffe://a/b",
        "http://[::1]:80/",
        "http://1.2.3.4",
        "mailto:a@b",
        "http://u:p@a:8443",
        "x+1-.y:z",
        "http://a:/",
    ];
    let others = [
        "",
        "%zz",
        "http://a/%zz",
        "http://a/%2",
        "http://a b/",
        "http://a..b/",
        "http:///x",
        "spiffe://",
        "/a",
        "a",
        "a:",
        "1a:b",
        "//h/x",
        "http://a./",
        "http://.a/",
        "http://a%41/",
        "http://[1.2.3.4]/",
        "http://[v1.a]/",
        "http://[fe80::1%25eth0]/",
        "http://*.a/",
        "http://a:b/",
        "http://a@b@c/",
        "http://a\\b",
        "a:b#c#d",
        "a:[b]",
        "http://a/[b]",
        "http://b\u{fc}cher/",
        "http://a/{b}",
        "http://[::1",
        "http://a,b/",
        "file:///x",
    ];
    check_texts(validate_uri_name, &uris, &others);
    check_texts(validate_uri_name, &[], &["ldap:///o=a"]);
    check_texts(
        validate_location_uri,
        &["ldap:///cn=a?b?c", "LDAP:///a", "ldap://h/a", "http://a/"],
        &["http:///a", "file:///a", "ldap"],
    );
}

#[test]
fn dns_labels_with_a_label_prefix_must_decode() {
    let good =
        ["xn--bcher-kva.test", "XN--BCHER-KVA.test", "a.xn--55qx5d", "xn--i-7iq.test", "*.xn--bcher-kva.test", "a--b"];
    // Empty, ASCII only, a control character, invalid Punycode, U+00DC (which must be lower case), two labels that
    // are not in NFC, a full stop as one character, a wide letter, a joiner without context.
    let bad =
        ["xn--", "xn--a-", "xn--a", "xn--zzzzzzzzzzz99999", "xn--bcher-2pa", "xn--u-ccb", "xn--u-bcb", "xn--a-ecp"]
            .into_iter()
            .chain(["xn--mi7c", "xn--u-ugn", "xn--*"]);
    let dns = |text: &str| text::validate_dns_name(text.as_bytes());
    good.iter().for_each(|name| assert!(dns(name).is_ok(), "{name}"));
    bad.for_each(|label: &str| assert!(dns(&format!("{label}.test")).is_err(), "{label}"));
    check_texts(validate_uri_name, &["https://xn--bcher-kva/"], &["https://xn--a/"]);
}

#[test]
fn other_names_of_known_types_are_validated() {
    let name = |kind: u8, tag: u8, text: &str| {
        tlv(0xa0, &[&[6, 8, 0x2b, 6, 1, 5, 5, 7, 8, kind], &tlv(0xa0, &[&tlv(tag, &[text.as_bytes()])])])
    };
    let rule = |name: &[u8]| validate_names(DerReader::new(name)).map_err(|error| error.0).err().unwrap_or_default();
    let held = |kind: u8, tag: u8, text: &str, broken: &str| {
        let found = rule(&name(kind, tag, text));
        assert!(found.contains(broken) && found.is_empty() == broken.is_empty(), "{text:?}: {found}");
    };
    for (tag, text, broken) in [
        (0x0c, "j\u{f6}rg@a.test", ""),
        (0x0c, "\u{533b}\u{751f}.x@xn--bcher-kva.test", ""),
        (0x0c, "\"\u{f6} x\"@[192.0.2.1]", ""),
        (0x0c, "x@a.test", "has an ASCII local part"),
        (0x0c, "\u{f6}@b\u{fc}cher.test", "not a mailbox"),
        (0x0c, "\u{f6}@", "not a mailbox"),
        (0x0c, "\u{f6}", "not a mailbox"),
        (0x0c, "\u{f6} x@a.test", "not a mailbox"),
        (0x0c, "\u{f6}\u{85}@a.test", "not a mailbox"),
        (0x0c, "\u{feff}\u{f6}@a.test", "not a mailbox"),
        (0x16, "x@a.test", "not a UTF8String"),
    ] {
        held(9, tag, text, broken);
    }
    for (tag, text, broken) in [
        (0x16, "_imap.a.test", ""),
        (0x16, "_xmpp-client.a", ""),
        (0x16, "imap.a.test", "must be _service.host"),
        (0x16, "_imap", "must be _service.host"),
        (0x16, "_.a", "must be _service.host"),
        (0x16, "_a_b.a", "must be _service.host"),
        (0x16, "_imap.a b", "must be _service.host"),
        (0x16, "", "a name is empty"),
        (0x0c, "_imap.a.test", "not an IA5String"),
    ] {
        held(7, tag, text, broken);
    }
}

#[test]
fn subtree_bases_are_validated() {
    let bad = ["a.test.", ".", "a..b", "..a", "*.a", "a b", "http://a", "a/b", "a:1"];
    check_texts(validate_host_base, &["", "a", ".a.test", "a_b"], &bad);
    check_texts(validate_host_base, &["1.2.3.4"], &["a@b"]);
    check_texts(validate_uri_base, &["", "a", ".a.test"], &bad);
    check_texts(validate_uri_base, &[], &["1.2.3.4", "::1", "[::1]", "a@b"]);
    check_texts(validate_mailbox_base, &["", "a", ".a.test", "a@b"], &bad);
    check_texts(validate_mailbox_base, &[], &["@", "a@", "@a", "a@.b", "a@@b", "a b@c", "a@b."]);
}

#[test]
fn unsupported_general_names_are_refused() {
    let good = [
        dns_name("a"),
        uri_name("urn:a:b"),
        tlv(0x81, &[b"a@b"]),
        tlv(0x87, &[&[1; 4]]),
        tlv(0x87, &[&[1; 16]]),
        tlv(0x88, &[&OID_1_2_3[2..]]),
        tlv(0xa4, &[&common_name(0x0c, b"a")]),
        tlv(0xa0, &[OID_1_2_3, &tlv(0xa0, &[&[0x0c, 1, b'a']])]),
        tlv(0xa0, &[OID_1_2_3, &tlv(0xa0, &[&[0x30, 3, 2, 1, 5]])]),
    ];
    let bad = [
        (tlv(0xa4, &[&common_name(0x0c, b"a\0b")]), "control characters"),
        (vec![0xa4, 4, 0x31, 2, 5, 0], "unexpected DER tag"),
        (vec![0xa4, 2, 0x30, 0], "directoryName is empty"),
        (tlv(0xa4, &[&common_name(0x0c, b"")]), "value of an attribute is empty"),
        (vec![0x88, 2, 0x80, 1], "malformed OBJECT IDENTIFIER"),
        (tlv(0x88, &[&OID_WITH_LARGE_ARC[2..]]), "2^28"),
        (vec![0xa3, 2, 0x30, 0], "x400Address"),
        (vec![0xa5, 5, 0xa1, 3, 0x0c, 1, b'a'], "ediPartyName"),
        (tlv(0xa0, &[OID_WITH_LARGE_ARC, &tlv(0xa0, &[&[0x0c, 1, b'a']])]), "2^28"),
        (tlv(0xa0, &[OID_1_2_3, &tlv(0xa0, &[&[0x0c, 1, 0]])]), "control characters"),
        (tlv(0xa0, &[OID_1_2_3, &tlv(0xa0, &[&[0x30, 2, 1, 0x80]])]), "indefinite length"),
        (tlv(0xa0, &[OID_1_2_3, &tlv(0xa0, &[&[0x30, 2, 1, 0x80], &[5, 0]])]), "trailing"),
        (tlv(0xa0, &[OID_1_2_3]), "truncated DER"),
        (vec![0x87, 3, 1, 2, 3], "4 or 16 octets"),
        (tlv(0x87, &[&[0; 10], &[0xff; 2], &[10, 0, 0, 1]]), "must have 4 octets"),
        (vec![0x89, 1, 1], "unknown kind"),
        (vec![0x82, 0], "a name is empty"),
    ];
    let list = |name: &Vec<u8>| tlv(SEQUENCE, &[name]);
    for oid in [oid::SUBJECT_ALT_NAME, oid::ISSUER_ALT_NAME] {
        let bad: Vec<_> =
            bad.iter().map(|(name, rule)| (list(name), *rule)).chain([(vec![0x30, 0], "must not be empty")]).collect();
        check_values(find_certificate_extension, oid, &good.iter().map(list).collect::<Vec<_>>(), &bad);
    }
}

#[test]
fn key_extensions_are_validated_completely() {
    check_values(
        find_certificate_extension,
        oid::KEY_USAGE,
        &[vec![3, 2, 7, 0x80], vec![3, 3, 7, 8, 0x80], vec![3, 2, 0, 9]],
        &[
            (vec![3, 1, 0], "at least one bit"),
            (vec![3, 2, 0, 0x80], "must not end in zero bits"),
            (vec![3, 2, 7, 0x81], "malformed"),
            (vec![3, 3, 6, 0, 0x40], "undefined bits"),
            (vec![3, 3, 7, 0, 0x80], "need keyAgreement"),
            (vec![3, 2, 0, 1], "need keyAgreement"),
            (vec![3, 4, 0, 0x80, 0, 1], "malformed"),
        ],
    );
    check_values(
        find_certificate_extension,
        oid::BASIC_CONSTRAINTS,
        &[vec![0x30, 0], vec![0x30, 3, 1, 1, 0xff], vec![0x30, 6, 1, 1, 0xff, 2, 1, 0]],
        &[
            (vec![0x30, 3, 1, 1, 0], "cA encodes the default FALSE"),
            (vec![0x30, 3, 1, 1, 1], "BOOLEAN"),
            (vec![0x30, 6, 1, 1, 0xff, 2, 1, 0xff], "negative"),
            (vec![0x30, 9, 1, 1, 0xff, 2, 1, 0, 2, 1, 0], "trailing"),
        ],
    );
    check_values(
        find_certificate_extension,
        oid::EXT_KEY_USAGE,
        &[tlv(SEQUENCE, &[OID_1_2_3])],
        &[
            (vec![0x30, 0], "must not be empty"),
            (tlv(SEQUENCE, &[OID_WITH_LARGE_ARC]), "2^28"),
            (tlv(SEQUENCE, &[OID_1_2_3, &[5, 0]]), "unexpected DER tag"),
        ],
    );
    check_values(
        find_certificate_extension,
        oid::SUBJECT_KEY_ID,
        &[vec![4, 1, 1]],
        &[(vec![4, 0], "must not be empty")],
    );
    check_values(
        find_certificate_extension,
        oid::AUTHORITY_KEY_ID,
        &[vec![0x30, 3, 0x80, 1, 1], tlv(SEQUENCE, &[&tlv(0xa1, &[&dns_name("a")]), &[0x82, 1, 1]])],
        &[
            (vec![0x30, 2, 0x80, 0], "key identifier must not be empty"),
            (vec![0x30, 3, 0x82, 1, 1], "both present or both absent"),
            (tlv(SEQUENCE, &[&tlv(0xa1, &[&dns_name("a..b")]), &[0x82, 1, 1]]), "not a host name"),
            (tlv(SEQUENCE, &[&tlv(0xa1, &[&dns_name("a")]), &[0x82, 2, 0, 1]]), "not minimal"),
            (vec![0x30, 2, 0x85, 0], "trailing"),
        ],
    );
    let time = |tag: u8| tlv(tag, &[b"20300101000000Z"]);
    check_values(
        find_certificate_extension,
        oid::PRIVATE_KEY_USAGE_PERIOD,
        &[tlv(SEQUENCE, &[&time(0x80)]), tlv(SEQUENCE, &[&time(0x80), &time(0x81)])],
        &[
            (vec![0x30, 0], "must not be empty"),
            (tlv(SEQUENCE, &[&tlv(0x80, &[b"20300101000000.5Z"])]), "a time must be"),
            (tlv(SEQUENCE, &[&tlv(0x80, &[b"00000101000000Z"])]), "year 0000"),
            (tlv(SEQUENCE, &[&time(0x80), &tlv(0x81, &[b"20290101000000Z"])]), "before it starts"),
        ],
    );
}

#[test]
fn policy_extensions_are_validated_completely() {
    let policy = |qualifier: &[u8]| tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_1_2_3, &tlv(SEQUENCE, &[qualifier])])]);
    let cps = |tag: u8| policy(&tlv(SEQUENCE, &[&tlv(6, &[oid::QUALIFIER_CPS]), &tlv(tag, &[b"http://a"])]));
    let notice = |parts: &[&[u8]]| policy(&tlv(SEQUENCE, &[&tlv(6, &[oid::QUALIFIER_NOTICE]), &tlv(SEQUENCE, parts)]));
    let reference = |tag: u8, number: u8| tlv(SEQUENCE, &[&[tag, 2, 0, b'o'][..], &[0x30, 3, 2, 1, number]]);
    let long = tlv(0x0c, &[&[b'a'; 201]]);
    check_values(
        find_certificate_extension,
        oid::CERTIFICATE_POLICIES,
        &[
            tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_1_2_3])]),
            cps(0x16),
            notice(&[]),
            notice(&[&[0x0c, 1, b'a']]),
            notice(&[&[0x16, 1, b'a']]),
            notice(&[&reference(0x1e, 5), &[0x0c, 1, b'a']]),
        ],
        &[
            (vec![0x30, 0], "must not be empty"),
            (tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_1_2_3, &[0x30, 0]])]), "policyQualifiers are empty"),
            (tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_1_2_3]), &tlv(SEQUENCE, &[OID_1_2_3])]), "appears twice"),
            (tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_WITH_LARGE_ARC])]), "2^28"),
            (cps(0x0c), "unexpected DER tag"),
            (policy(&tlv(SEQUENCE, &[OID_1_2_3, &[0x30, 0]])), "neither cPSuri nor userNotice"),
            (notice(&[&[0x13, 1, b'a']]), "does not permit"),
            (notice(&[&[0x1e, 2, 0, b'a']]), "does not permit"),
            (notice(&[&[0x0c, 0]]), "1 to 200"),
            (notice(&[&long]), "1 to 200"),
            (notice(&[&reference(0x1e, 0xff)]), "negative"),
            (notice(&[&[0x0c, 1, b'a'], &[0x0c, 1, b'a']]), "trailing"),
        ],
    );
    let any = tlv(6, &[oid::ANY_POLICY]);
    check_values(
        find_certificate_extension,
        oid::POLICY_MAPPINGS,
        &[tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_1_2_3, OID_1_2_3])])],
        &[
            (vec![0x30, 0], "must not be empty"),
            (tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&any, OID_1_2_3])]), "anyPolicy"),
            (tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_1_2_3, &any])]), "anyPolicy"),
            (tlv(SEQUENCE, &[&tlv(SEQUENCE, &[OID_1_2_3])]), "truncated"),
        ],
    );
    check_values(
        find_certificate_extension,
        oid::POLICY_CONSTRAINTS,
        &[vec![0x30, 3, 0x80, 1, 0], vec![0x30, 6, 0x80, 1, 0, 0x81, 1, 127]],
        &[
            (vec![0x30, 0], "must not be empty"),
            (vec![0x30, 3, 0x80, 1, 0xff], "negative"),
            (vec![0x30, 4, 0x80, 2, 0, 1], "not minimal"),
            (vec![0x30, 7, 0x81, 5, 1, 1, 1, 1, 1], "too large"),
            (vec![0x30, 2, 0x81, 0], "not minimal"),
        ],
    );
    check_values(
        find_certificate_extension,
        oid::INHIBIT_ANY_POLICY,
        &[vec![2, 1, 0]],
        &[(vec![2, 1, 0xff], "negative"), (vec![2, 5, 1, 1, 1, 1, 1], "too large")],
    );
}

/// Encodes a list with one distribution point that has these fields.
fn point(fields: &[&[u8]]) -> Vec<u8> {
    tlv(SEQUENCE, &[&tlv(SEQUENCE, fields)])
}

#[test]
fn distribution_points_and_access_are_validated_completely() {
    let full = |name: &[u8]| tlv(0xa0, &[&tlv(0xa0, &[name])]);
    let name = full(&uri_name("http://a/"));
    let issuer = tlv(0xa2, &[&tlv(0xa4, &[&common_name(0x0c, b"a")])]);
    for oid in [oid::CRL_DISTRIBUTION_POINTS, oid::FRESHEST_CRL] {
        check_values(
            find_certificate_extension,
            oid,
            &[
                point(&[&name]),
                point(&[&issuer]),
                point(&[&name, &[0x81, 2, 1, 6], &issuer]),
                point(&[&full(&uri_name("ldap:///a"))]),
            ],
            &[
                (vec![0x30, 0], "must not be empty"),
                (point(&[]), "neither distributionPoint nor cRLIssuer"),
                (point(&[&[0x81, 2, 1, 6]]), "neither distributionPoint nor cRLIssuer"),
                (point(&[&full(&[])]), "fullName of a distribution point is empty"),
                (point(&[&full(&uri_name("http:///a"))]), "no usable host"),
                (point(&[&tlv(0xa0, &[&[0xa1, 0]])]), "fullName"),
                (point(&[&name, &[0x81, 2, 0, 6]]), "zero bits"),
                (point(&[&name, &[0x81, 1, 0]]), "reasons of a distribution point are empty"),
                (point(&[&tlv(0xa2, &[])]), "cRLIssuer is empty"),
                (point(&[&name, &[5, 0]]), "trailing"),
            ],
        );
    }
    for oid in [oid::AUTHORITY_INFO_ACCESS, oid::SUBJECT_INFO_ACCESS] {
        check_values(
            find_certificate_extension,
            oid,
            &[point(&[OID_1_2_3, &uri_name("http://a")]), point(&[OID_1_2_3, &dns_name("a")])],
            &[
                (vec![0x30, 0], "must not be empty"),
                (tlv(SEQUENCE, &[&[2, 1, 1]]), "unexpected DER tag"),
                (point(&[OID_1_2_3]), "truncated DER"),
                (point(&[OID_1_2_3, &uri_name("http://a"), &[5, 0]]), "trailing"),
                (point(&[OID_1_2_3, &uri_name("%zz")]), "RFC 3986"),
                (point(&[OID_WITH_LARGE_ARC, &uri_name("http://a")]), "2^28"),
            ],
        );
    }
    check_values(
        find_crl_extension,
        oid::ISSUING_DISTRIBUTION_POINT,
        &[tlv(SEQUENCE, &[&name]), vec![0x30, 3, 0x81, 1, 0xff], vec![0x30, 7, 0x83, 2, 1, 6, 0x84, 1, 0xff]],
        &[
            (vec![0x30, 0], "must not be empty (RFC 5280 5.2.5)"),
            (vec![0x30, 3, 0x81, 1, 0], "must be TRUE (0xFF) or absent"),
            (vec![0x30, 6, 0x81, 1, 0xff, 0x82, 1, 0xff], "must not both be TRUE"),
            (vec![0x30, 3, 0x85, 1, 0xff], "onlyContainsAttributeCerts"),
            (tlv(SEQUENCE, &[&full(&uri_name("%zz"))]), "RFC 3986"),
        ],
    );
}

#[test]
fn name_constraints_are_validated_completely() {
    let of = |side: u8, base: &[u8]| tlv(SEQUENCE, &[&tlv(side, &[&tlv(SEQUENCE, &[base])])]);
    let network = |octets: &[u8]| of(0xa0, &tlv(0x87, &[octets]));
    let v6 = [[0xfd; 16].map(|b| b & 0xfd), [0xff; 16]].concat();
    let mapped = [&[0; 10], &[0xff; 2][..], &[10, 0, 0, 0], &[0xff; 13], &[0; 3]].concat();
    let service = |name: &str| {
        let name = tlv(0xa0, &[&tlv(0x16, &[name.as_bytes()])]);
        of(0xa0, &tlv(0xa0, &[&[6, 8, 0x2b, 6, 1, 5, 5, 7, 8, 7], &name]))
    };
    check_values(
        find_certificate_extension,
        oid::NAME_CONSTRAINTS,
        &[
            of(0xa0, &dns_name(".a.test")),
            of(0xa1, &dns_name("")),
            network(&[10, 0, 0, 0, 255, 0, 0, 0]),
            network(&[0; 8]),
            network(&[0; 32]),
            network(&v6),
            of(0xa0, &tlv(0xa4, &[&common_name(0x0c, b"a")])),
            of(0xa1, &tlv(0xa4, &[&[0x30, 0]])),
            service("_imap"),
            service("a.test"),
            service(".a.test"),
            service("_imap.a.test"),
        ],
        &[
            (service("_i_map"), "must be _service.host"),
            (service("_imap.a b"), "must be _service.host"),
            (service("a b"), "an empty label or a space"),
            (vec![0x30, 0], "must not be empty"),
            (vec![0x30, 2, 0xa0, 0], "must not be empty"),
            (tlv(SEQUENCE, &[&tlv(0xa0, &[&tlv(SEQUENCE, &[&dns_name("a")])]), &[0xa1, 0]]), "must not be empty"),
            (network(b"abc"), "8 or 32 octets"),
            (network(&[10, 0, 0, 0, 255, 0, 255, 0]), "not contiguous"),
            (network(&[10, 0, 0, 1, 255, 0, 0, 0]), "outside of its mask"),
            (network(&mapped), "must have 8 octets"),
            (tlv(SEQUENCE, &[&tlv(0xa0, &[&tlv(SEQUENCE, &[&dns_name("a"), &[0x80, 1, 1]])])]), "minimum or maximum"),
            (tlv(SEQUENCE, &[&tlv(0xa0, &[&tlv(SEQUENCE, &[&dns_name("a"), &[0x80, 1, 0]])])]), "minimum or maximum"),
            (tlv(SEQUENCE, &[&tlv(0xa0, &[&tlv(SEQUENCE, &[&dns_name("a"), &[0x81, 1, 1]])])]), "minimum or maximum"),
            (of(0xa0, &dns_name("a.test.")), "an empty label or a space"),
            (of(0xa0, &dns_name("*.test")), "not a host name or domain"),
            (of(0xa0, &tlv(0x81, &[b"@"])), "not a mailbox"),
            (of(0xa0, &uri_name("1.2.3.4")), "is an address"),
            (of(0xa0, &tlv(0xa4, &[&[0x31, 0]])), "unexpected DER tag"),
            (of(0xa0, &[0xa3, 0]), "x400Address"),
            (of(0xa0, &[0x88, 2, 0x80, 1]), "malformed OBJECT IDENTIFIER"),
        ],
    );
}

#[test]
fn extensions_outside_rfc_5280_are_validated_completely() {
    let stamp = |version: u8, hash: u8, signature: u8, end: &[u8]| {
        [&[version][..], &[7; 32], &[0; 8], &[0, 0, hash, signature], end].concat()
    };
    let sized = |content: &[u8]| [&[0, content.len() as u8][..], content].concat();
    let list = |stamp: &[u8]| tlv(OCTET_STRING, &[&sized(&sized(stamp))]);
    let good = stamp(0, 4, 3, &[0, 2, 1, 1]);
    check_values(
        find_certificate_extension,
        oid::SCT_LIST,
        &[list(&good), list(&stamp(0, 4, 1, &[0, 1, 9]))],
        &[
            (vec![4, 2, 0, 0], "must not be empty"),
            (vec![4, 0], "length of a timestamp"),
            (list(&[]), "length of a timestamp"),
            (list(&good[..40]), "length of a timestamp"),
            (list(&[&good[..], &[1]].concat()), "length of a timestamp"),
            (list(&stamp(1, 4, 3, &[0, 1, 9])), "version of a timestamp"),
            (list(&stamp(0, 9, 9, &[0, 1, 9])), "unsupported algorithm"),
            (list(&stamp(0, 4, 3, &[0, 0])), "not signed"),
            (list(&[&[0; 33][..], &[0xff; 8], &good[41..]].concat()), "9999"),
        ],
    );
    check_values(
        find_certificate_extension,
        oid::TLS_FEATURE,
        &[vec![0x30, 3, 2, 1, 5], vec![0x30, 6, 2, 1, 5, 2, 1, 17]],
        &[
            (vec![0x30, 0], "must not be empty"),
            (vec![0x30, 3, 2, 1, 99], "features other than"),
            (vec![0x30, 3, 2, 1, 0xff], "negative"),
        ],
    );
    for oid in [oid::PRECERTIFICATE_POISON, oid::OCSP_NO_CHECK] {
        check_values(find_certificate_extension, oid, &[vec![5, 0]], &[(vec![4, 0], "NULL")]);
    }
    check_values(
        find_certificate_extension,
        oid::CERTIFICATE_TEMPLATE,
        &[tlv(SEQUENCE, &[OID_1_2_3]), tlv(SEQUENCE, &[OID_1_2_3, &[2, 1, 1, 2, 1, 2]])],
        &[(tlv(SEQUENCE, &[OID_1_2_3, &[2, 1, 0xff]]), "negative"), (tlv(SEQUENCE, &[OID_WITH_LARGE_ARC]), "2^28")],
    );
    check_values(
        find_certificate_extension,
        oid::SUBJECT_DIRECTORY_ATTRIBUTES,
        &[point(&[OID_1_2_3, &tlv(SET, &[&[5, 0]])])],
        &[
            (vec![0x30, 0], "must not be empty"),
            (point(&[OID_1_2_3, &[0x31, 0]]), "no value"),
            (point(&[OID_1_2_3, &[0x31, 3, 1, 1, 1]]), "BOOLEAN"),
        ],
    );
    let profession = |parts: &[&[u8]]| {
        tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&tlv(SEQUENCE, parts)])])])])
    };
    let items = tlv(SEQUENCE, &[&[0x0c, 1, b'a']]);
    let authority = tlv(0xa0, &[&tlv(SEQUENCE, &[OID_1_2_3, &tlv(0x16, &[b"http://a"]), &[0x0c, 1, b'a']])]);
    check_values(
        find_certificate_extension,
        oid::ADMISSION,
        &[
            vec![0x30, 2, 0x30, 0],
            tlv(SEQUENCE, &[&tlv(0xa4, &[&common_name(0x0c, b"a")]), &[0x30, 0]]),
            profession(&[&items]),
            profession(&[&authority, &items, &tlv(SEQUENCE, &[OID_1_2_3]), &[0x13, 1, b'1'], &[4, 1, 0]]),
        ],
        &[
            (profession(&[&tlv(SEQUENCE, &[&[0x0c, 0]])]), "UTF8String"),
            (profession(&[&tlv(SEQUENCE, &[&[0x13, 1, b'a']])]), "UTF8String"),
            (profession(&[&items, &[0x13, 1, b'@']]), "its type does not allow"),
            (profession(&[&items, &[5, 0]]), "trailing"),
        ],
    );
}

#[test]
fn crl_and_unsupported_extensions_are_refused_in_certificates() {
    check_values(
        find_certificate_extension,
        oid::NS_CERT_TYPE,
        &[vec![3, 2, 4, 0xf0], vec![3, 2, 0, 0x80], vec![3, 1, 0]],
        &[
            (vec![3, 0], "malformed BIT STRING"),
            (vec![3, 1, 7], "malformed BIT STRING"),
            (vec![3, 2, 8, 0], "malformed BIT STRING"),
            (vec![3, 2, 4, 0xf1], "unused bits"),
            (vec![4, 1, 0], "unexpected DER tag"),
        ],
    );
    // The second value is well-formed: it inherits the addresses of the issuer.
    for (oid, value, rule) in [
        (oid::IP_ADDR_BLOCKS, b"junk".to_vec(), "is not supported"),
        (oid::IP_ADDR_BLOCKS, point(&[&[4, 2, 0, 1], &[5, 0]]), "RFC 3779"),
        (oid::AUTONOMOUS_SYS_IDS, tlv(SEQUENCE, &[&[0xa0, 2, 5, 0]]), "RFC 3779"),
        (oid::PROXY_CERT_INFO, point(&[OID_1_2_3]), "RFC 3820"),
        (oid::CRL_NUMBER, vec![2, 1, 1], "not be in a certificate"),
        (oid::REASON_CODE, vec![10, 1, 1], "not be in a certificate"),
        (oid::INVALIDITY_DATE, tlv(0x18, &[b"20300101000000Z"]), "not be in a certificate"),
        (oid::DELTA_CRL_INDICATOR, vec![2, 1, 1], "not be in a certificate"),
        (oid::ISSUING_DISTRIBUTION_POINT, vec![0x30, 3, 0x81, 1, 0xff], "not be in a certificate"),
        (oid::CERTIFICATE_ISSUER, tlv(SEQUENCE, &[&dns_name("a")]), "not be in a certificate"),
    ] {
        check_values(find_certificate_extension, oid, &[], &[(value, rule)]);
    }
}

#[test]
fn crl_and_entry_extensions_are_validated_completely() {
    for oid in [oid::CRL_NUMBER, oid::DELTA_CRL_INDICATOR] {
        let long = tlv(2, &[&[1; 21]]);
        check_values(find_crl_extension, oid, &[vec![2, 1, 0]], &[(vec![2, 1, 0xff], "negative"), (long, "20 octets")]);
    }
    check_values(
        find_entry_extension,
        oid::REASON_CODE,
        &[vec![10, 1, 0], vec![10, 1, 10]],
        &[(vec![10, 1, 7], "unknown reason code"), (vec![10, 1, 11], "unknown reason code")],
    );
    check_values(
        find_entry_extension,
        oid::INVALIDITY_DATE,
        &[tlv(0x18, &[b"20300101000000Z"])],
        &[
            (tlv(0x18, &[b"20300101000000+01"]), "a time must be"),
            (tlv(0x17, &[b"300101000000Z"]), "unexpected DER tag"),
            (tlv(0x18, &[b"00001231235959Z"]), "year 0000"),
        ],
    );
    check_values(
        find_entry_extension,
        oid::CERTIFICATE_ISSUER,
        &[tlv(SEQUENCE, &[&dns_name("a")])],
        &[(vec![0x30, 0], "must not be empty")],
    );
}

#[test]
fn criticality_must_match_the_profile() {
    let held = |known: Option<ExtensionProfile>, critical, value: &[u8]| {
        known.unwrap().validate("field", critical, value).map_err(|e| e.text().to_owned())
    };
    let access = point(&[OID_1_2_3, &uri_name("http://a")]);
    for oid in [oid::AUTHORITY_INFO_ACCESS, oid::SUBJECT_INFO_ACCESS] {
        assert_eq!(held(find_certificate_extension(oid), false, &access), Ok(()));
        assert!(
            held(find_certificate_extension(oid), true, &access)
                .unwrap_err()
                .contains("InfoAccess: must not be critical")
        );
    }
    for (oid, value) in [(oid::INHIBIT_ANY_POLICY, &[2, 1, 0][..]), (oid::POLICY_CONSTRAINTS, &[0x30, 3, 0x80, 1, 0])] {
        assert_eq!(held(find_certificate_extension(oid), true, value), Ok(()));
        assert!(held(find_certificate_extension(oid), false, value).unwrap_err().contains("must be critical"));
    }
    assert!(
        held(find_entry_extension(oid::REASON_CODE), true, &[10, 1, 1]).unwrap_err().contains("must not be critical")
    );
    assert!(held(find_crl_extension(oid::ISSUING_DISTRIBUTION_POINT), false, &[0x30, 3, 0x81, 1, 0xff]).is_err());
    assert!(
        find_certificate_extension(&[42, 3]).is_none()
            && find_crl_extension(&[42, 3]).is_none()
            && find_entry_extension(&[42, 3]).is_none()
    );
}

#[test]
fn encoded_extensions_fit_the_profile() {
    let urls = ["http://a.test/x".to_owned()];
    let sans = SubjectAltNames {
        dns: vec!["*.a.test".into()],
        emails: vec!["a@b.test".into()],
        ips: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        uris: vec!["spiffe://a/b".into()],
        other: vec![(vec![42, 3], "ü".into())],
    };
    let mut constraints = NameConstraints::default();
    constraints.permitted.dns.push(".a.test".into());
    constraints.excluded.ips.push("10.1.2.3/8".parse().unwrap());
    let policy = CertificatePolicy { oid: vec![42, 3], cps: Some("http://a".into()), notice: Some("ü".into()) };
    for written in [
        extension::key_usage(KeyUsage::KEY_AGREEMENT.union(KeyUsage::DECIPHER_ONLY)),
        extension::ext_key_usage(&[vec![42, 3]]),
        extension::basic_constraints(true, Some(0)),
        extension::basic_constraints(false, None),
        extension::subject_key_id(&[1]),
        extension::authority_key_id(&[1]),
        extension::authority_info_access(&urls, &urls),
        extension::crl_distribution_points(&urls),
        extension::freshest_crl(&urls),
        extension::subject_alt_name(&sans, true),
        extension::certificate_policies(&[policy]),
        extension::name_constraints(&constraints),
    ] {
        let extension = ExtensionRef::next(&mut DerReader::new(written.as_der())).unwrap();
        let known = find_certificate_extension(extension.oid).unwrap();
        known.validate("", extension.critical == Some(true), extension.value).unwrap();
    }
    let texts = ["bücher", "a@b", "Example, Inc.", "b", "a"].map(str::to_owned);
    for attribute in [Attribute::OrganizationalUnit, Attribute::EmailAddress, Attribute::DomainComponent] {
        validate_directory_name(directory_name::name(&[&rdn(attribute, &texts)]).as_der()).unwrap();
    }
}

const VALIDATED_EXTENSION_OIDS: [&[u8]; 29] = [
    oid::SUBJECT_KEY_ID,
    oid::KEY_USAGE,
    oid::SUBJECT_ALT_NAME,
    oid::BASIC_CONSTRAINTS,
    oid::EXT_KEY_USAGE,
    oid::AUTHORITY_INFO_ACCESS,
    oid::CRL_DISTRIBUTION_POINTS,
    oid::CERTIFICATE_POLICIES,
    oid::NAME_CONSTRAINTS,
    oid::ISSUER_ALT_NAME,
    oid::POLICY_MAPPINGS,
    oid::POLICY_CONSTRAINTS,
    oid::INHIBIT_ANY_POLICY,
    oid::SUBJECT_INFO_ACCESS,
    oid::SUBJECT_DIRECTORY_ATTRIBUTES,
    oid::PRIVATE_KEY_USAGE_PERIOD,
    oid::TLS_FEATURE,
    oid::SCT_LIST,
    oid::PRECERTIFICATE_POISON,
    oid::OCSP_NO_CHECK,
    oid::CERTIFICATE_TEMPLATE,
    oid::ADMISSION,
    oid::AUTHORITY_KEY_ID,
    oid::FRESHEST_CRL,
    oid::ISSUING_DISTRIBUTION_POINT,
    oid::NS_CERT_TYPE,
    oid::IP_ADDR_BLOCKS,
    oid::AUTONOMOUS_SYS_IDS,
    oid::PROXY_CERT_INFO,
];

proptest! {
    #[test]
    fn extension_validation_of_any_bytes_does_not_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
        let inside = tlv(SEQUENCE, &[&value]);
        for oid in VALIDATED_EXTENSION_OIDS {
            for known in [find_certificate_extension(oid), find_crl_extension(oid), find_entry_extension(oid)].into_iter().flatten() {
                let _ = (known.validate("", false, &value), known.validate("", true, &inside));
            }
        }
        let _ = (validate_directory_name(&value), validate_names(DerReader::new(&value)));
    }

    #[test]
    fn name_validation_of_any_text_does_not_panic(text in "\\PC{0,40}") {
        for check in [text::validate_dns_name, text::validate_mailbox, validate_uri_name, validate_location_uri, validate_host_base, validate_mailbox_base, validate_uri_base] {
            let _ = check(text.as_bytes());
        }
    }
}
