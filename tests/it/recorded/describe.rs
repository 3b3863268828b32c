//! Descriptions of certificates, requests, CRLs, OCSP responses and private keys, without random values.

use super::der::{Element, first, hex};
use super::names::Names;

/// The kind of an object, and its description.
pub struct Kind {
    pub word: &'static str,
    pub text: String,
}

const SUBJECT_KEY_ID: &str = "2.5.29.14";
const AUTHORITY_KEY_ID: &str = "2.5.29.35";
/// Replaces a time of the real clock.
const PRESENT: &str = "(present time)";
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 2;
const OCTETS: u8 = 4;
const OID: u8 = 6;

/// Describes an object by its outermost elements; `None` for another kind of object.
type Describe = fn(&[Element<'_>], &mut Names) -> Option<String>;

/// Describes an object. The PEM label distinguishes private keys.
pub fn object(label: Option<&str>, der: &[u8], names: &mut Names) -> Kind {
    if let Some(text) = private_key(label, der) {
        return Kind { word: "key", text };
    }
    let outer = first(der).and_then(|(element, _)| element.children()).unwrap_or_default();
    let known: [(&str, Describe); 4] = [("certificate", certificate), ("crl", crl), ("csr", csr), ("ocsp", ocsp)];
    for (word, describe) in known {
        if let Some(text) = describe(&outer, names) {
            return Kind { word, text };
        }
    }
    Kind { word: "der", text: format!("{} octets{}\n", der.len(), label.map(|l| format!(", {l}")).unwrap_or_default()) }
}

fn private_key(label: Option<&str>, der: &[u8]) -> Option<String> {
    let parts = first(der)?.0.children()?;
    let tags: Vec<u8> = parts.iter().map(|part| part.tag).collect();
    let form = match (&tags[..], label) {
        ([INTEGER, SEQUENCE, OCTETS, ..], _) => format!("PKCS #8, {}", algorithm(&parts[1])?),
        ([INTEGER, OCTETS, more @ ..], _) if more.iter().all(|tag| matches!(tag, 0xa0 | 0xa1)) => {
            "SEC 1".to_owned()
                + &parts[2..]
                    .iter()
                    .filter(|part| part.tag == 0xa0)
                    .map(|part| format!(", {}", part.hex()))
                    .collect::<String>()
        }
        (tags, _) if tags.len() == 9 && tags.iter().all(|tag| *tag == INTEGER) => "PKCS #1".to_owned(),
        (_, Some(label)) if label.ends_with("PRIVATE KEY") => "unknown form".to_owned(),
        _ => return None,
    };
    Some(format!("{}: {form}\n", label.unwrap_or("private key")))
}

/// Splits into to-be-signed part, algorithm and signature.
fn signed<'d>(outer: &[Element<'d>]) -> Option<(Vec<Element<'d>>, String)> {
    let [tbs, signature, _] = outer else { return None };
    Some((tbs.children()?, format!("signed by: {}\n", algorithm(signature)?)))
}

fn certificate(outer: &[Element<'_>], names: &mut Names) -> Option<String> {
    let (tbs, signature) = signed(outer)?;
    let (version, rest) = match tbs.split_first()? {
        (version, rest) if version.tag == 0xa0 => (version.hex(), rest),
        _ => ("none".to_owned(), &tbs[..]),
    };
    let [serial, inner, issuer, validity, subject, key, rest @ ..] = rest else { return None };
    if serial.tag != INTEGER || key.tag != SEQUENCE {
        return None;
    }
    let mut text = format!("version: {version}\nserial: {}\n", names.of("serial", unsigned(serial)));
    text += &format!("inner algorithm: {}\nissuer: {}\n", algorithm(inner)?, name(issuer)?);
    let dates: Vec<String> = validity.children()?.iter().map(time).collect();
    // The end of a certificate issued now depends on the real clock, too.
    let dates = if dates.first()? == PRESENT { PRESENT.to_owned() } else { dates.join(" to ") };
    text += &format!("validity: {dates}\n");
    text += &format!("subject: {}\nkey: {}\n", name(subject)?, public_key(key, names)?);
    for part in rest {
        match part.tag {
            0xa3 => text += &extensions(part, names)?,
            _ => text += &format!("part {:02x}: {}\n", part.tag, part.hex()),
        }
    }
    Some(text + &signature)
}

fn csr(outer: &[Element<'_>], names: &mut Names) -> Option<String> {
    let (info, signature) = signed(outer)?;
    let [version, subject, key, attributes @ ..] = &info[..] else { return None };
    let mut text = format!("version: {}\nsubject: {}\n", version.hex(), name(subject)?);
    text += &format!("key: {}\n", public_key(key, names)?);
    for attribute in optional(attributes)? {
        let parts = attribute.children()?;
        let [id, values] = &parts[..] else { return None };
        text += &format!("attribute {}: {}\n", id.oid(), values.hex());
    }
    Some(text + &signature)
}

fn crl(outer: &[Element<'_>], names: &mut Names) -> Option<String> {
    let (tbs, signature) = signed(outer)?;
    let [version, inner, issuer, rest @ ..] = &tbs[..] else { return None };
    let times = rest.iter().take_while(|part| matches!(part.tag, 0x17 | 0x18)).count();
    if version.tag != INTEGER || times == 0 {
        return None;
    }
    let mut text = format!("version: {}\ninner algorithm: {}\n", version.hex(), algorithm(inner)?);
    let dates: Vec<String> = rest[..times].iter().map(time).collect();
    text += &format!("issuer: {}\nupdates: {}\n", name(issuer)?, dates.join(" to "));
    for part in &rest[times..] {
        if part.tag == SEQUENCE {
            for entry in part.children()? {
                let parts = entry.children()?;
                let [serial, at, more @ ..] = &parts[..] else { return None };
                text += &format!("revoked: {} {}\n", names.of("serial", unsigned(serial)), time(at));
                for extension in optional(more)? {
                    text += &format!("  {}", self::extension(&extension, names)?);
                }
            }
        } else {
            text += &extensions(part, names)?;
        }
    }
    Some(text + &signature)
}

fn ocsp(outer: &[Element<'_>], names: &mut Names) -> Option<String> {
    let [status, rest @ ..] = outer else { return None };
    if status.tag != 0x0a {
        return None;
    }
    let mut text = format!("status: {}\n", status.hex());
    let Some(bytes) = rest.first() else { return Some(text) };
    let parts = bytes.children()?.first()?.children()?;
    let [kind, basic] = &parts[..] else { return None };
    let parts = first(basic.content)?.0.children()?;
    let [data, signature, _, certificates @ ..] = &parts[..] else { return None };
    text += &format!("kind: {}\n", kind.oid());
    for (at, part) in data.children()?.iter().enumerate() {
        match part.tag {
            0xa1 if at == 0 => text += &format!("responder: {}\n", name(&first(part.content)?.0)?),
            0xa2 => text += &format!("responder: {}\n", names.of("keyid", first(part.content)?.0.content)),
            0x18 => text += &format!("produced: {}\n", time(part)),
            SEQUENCE => {
                for single in part.children()? {
                    text += &single_response(&single, names)?;
                }
            }
            _ => text += &extensions(part, names)?,
        }
    }
    for certificate in certificates.first().and_then(|part| part.children()?.first()?.children()).unwrap_or_default() {
        text += &format!("beside it: {}\n", names.of_der(None, certificate.whole));
    }
    Some(text + &format!("signed by: {}\n", algorithm(signature)?))
}

fn single_response(single: &Element<'_>, names: &mut Names) -> Option<String> {
    let parts = single.children()?;
    let [id, status, rest @ ..] = &parts[..] else { return None };
    let id = id.children()?;
    let [hash, of_name, of_key, serial] = &id[..] else { return None };
    let mut text = format!("about: {}, {}\n", names.of("serial", unsigned(serial)), algorithm(hash)?);
    text += &format!("  of: {} {}\n", of_name.hex(), names.of("keyid", of_key.content));
    text += &match status.tag {
        0x80 => "  good\n".to_owned(),
        0x82 => "  unknown\n".to_owned(),
        _ => {
            let parts = status.children()?;
            let reason = parts.get(1).map(|reason| format!(", reason {}", reason.hex())).unwrap_or_default();
            format!("  revoked: {}{reason}\n", time(parts.first()?))
        }
    };
    for part in rest {
        match part.tag {
            0x18 => text += &format!("  this update: {}\n", time(part)),
            0xa0 => text += &format!("  next update: {}\n", time(&first(part.content)?.0)),
            _ => text += &extensions(part, names)?,
        }
    }
    Some(text)
}

/// The children of the first element, if there is one.
fn optional<'d>(elements: &[Element<'d>]) -> Option<Vec<Element<'d>>> {
    elements.first().map_or_else(|| Some(Vec::new()), Element::children)
}

/// The bytes of a number without the leading sign byte.
fn unsigned<'d>(number: &Element<'d>) -> &'d [u8] {
    number.content.strip_prefix(&[0]).filter(|rest| !rest.is_empty()).unwrap_or(number.content)
}

/// An AlgorithmIdentifier: its id, and its parameters in hex.
fn algorithm(element: &Element<'_>) -> Option<String> {
    let parts = element.children()?;
    let id = parts.first().filter(|id| id.tag == OID)?.oid();
    Some(parts[1..].iter().fold(id, |text, more| format!("{text} {:02x}:{}", more.tag, more.hex())))
}

fn name(element: &Element<'_>) -> Option<String> {
    let mut sets = Vec::new();
    for set in element.children()? {
        let mut attributes = Vec::new();
        for attribute in set.children()? {
            let parts = attribute.children()?;
            let [id, value] = &parts[..] else { return None };
            attributes.push(format!("{}({:02x})={}", id.oid(), value.tag, characters(value.content)));
        }
        sets.push(attributes.join(" + "));
    }
    Some(if sets.is_empty() { "(empty)".to_owned() } else { sets.join(", ") })
}

/// The text of a value; escaped bytes if it is not UTF-8 or has control characters.
fn characters(octets: &[u8]) -> String {
    match std::str::from_utf8(octets) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => octets.escape_ascii().to_string(),
    }
}

/// The encoded time, unless it is from the real clock.
fn time(element: &Element<'_>) -> String {
    let text = String::from_utf8_lossy(element.content).into_owned();
    let year = if element.tag == 0x17 { format!("20{}", &text[..2]) } else { text[..4].to_owned() };
    if ("2024".."2030").contains(&&year[..]) { PRESENT.to_owned() } else { text }
}

/// A SubjectPublicKeyInfo: algorithm, size, and a name that identifies the key.
fn public_key(element: &Element<'_>, names: &mut Names) -> Option<String> {
    let parts = element.children()?;
    let [kind, bits] = &parts[..] else { return None };
    let octets = bits.octets();
    Some(format!("{} {} octets, {}", algorithm(kind)?, octets.len(), names.of("public", octets)))
}

fn extensions(tagged: &Element<'_>, names: &mut Names) -> Option<String> {
    let mut text = String::new();
    for one in first(tagged.content)?.0.children()? {
        text += &extension(&one, names)?;
    }
    Some(text)
}

fn extension(element: &Element<'_>, names: &mut Names) -> Option<String> {
    let parts = element.children()?;
    let (id, critical, value) = match &parts[..] {
        [id, value] => (id.oid(), "", value.content),
        [id, critical, value] => {
            (id.oid(), if critical.content == [0xff] { " critical" } else { " odd" }, value.content)
        }
        _ => return None,
    };
    let shown = match &id[..] {
        SUBJECT_KEY_ID => names.of("keyid", first(value)?.0.content),
        AUTHORITY_KEY_ID => {
            let parts = first(value)?.0.children()?;
            let part = |part: &Element<'_>| match part.tag {
                0x80 => names.of("keyid", part.content),
                0x82 => names.of("serial", unsigned(part)),
                tag => format!("{tag:02x}:{}", part.hex()),
            };
            parts.iter().map(part).collect::<Vec<_>>().join(" ")
        }
        // A URL may contain the id of an issuer.
        _ if value.windows(3).any(|three| three == b"://") => names.stable(&value.escape_ascii().to_string()),
        _ => hex(value),
    };
    Some(format!("extension {id}{critical}: {shown}\n"))
}
