//! Generators of hostile input: DER that was valid before a change, and texts that resemble names.

use signet::x509::reader::{DerReader, Tlv};
use signet::x509::writer::{DerWriter, build};

use crate::model::random::Random;

/// A value whose lengths are computed when it is written, so that errors are deeper in its structure.
#[derive(Clone)]
enum Node {
    Leaf(u8, Vec<u8>),
    Group(u8, Vec<Node>),
}

impl Node {
    fn read(value: &Tlv<'_>) -> Self {
        let inside = if value.tag & 0x20 != 0 { nodes(value.content) } else { None };
        inside.map_or_else(|| Self::Leaf(value.tag, value.content.to_vec()), |all| Self::Group(value.tag, all))
    }

    fn write(&self, w: &mut DerWriter) {
        match self {
            Self::Leaf(tag, content) => w.tlv(*tag, content),
            Self::Group(tag, all) => w.nest(*tag, |w| all.iter().for_each(|node| node.write(w))),
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::Leaf(..) => 1,
            Self::Group(_, all) => 1 + all.iter().map(Self::count).sum::<u64>(),
        }
    }
}

fn nodes(der: &[u8]) -> Option<Vec<Node>> {
    let mut reader = DerReader::new(der);
    let mut all = Vec::new();
    while !reader.is_empty() {
        all.push(Node::read(&reader.any().ok()?));
    }
    Some(all)
}

const TAGS: [u8; 30] = [
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x0a, 0x0c, 0x12, 0x13, 0x14, 0x16, 0x17, 0x18, 0x1a, 0x1c, 0x1e, 0x2c, 0x30,
    0x31, 0x80, 0x81, 0x82, 0x86, 0x87, 0x88, 0xa0, 0xa1, 0xa3, 0xa4,
];

const CONTENTS: [&[u8]; 34] = [
    b"",
    b"\0",
    b"\x01",
    b"\xff",
    b"\0\x01",
    b"\x7f\xff\xff\xff\xff",
    b"\x80\x01",
    b"\x2a\x03",
    b"\x2a\x88\x80\x80\x80\x00",
    b"\x30\x00",
    b"\x31\x00",
    b"\x05\x00",
    b"\x02\x01\xff",
    b"\x30\x80\x00\x00",
    b"a\0b",
    b"a@b",
    b"a*b",
    b"a..b",
    b"a.test.",
    b".",
    b"@",
    b"%zz",
    b"http://a..b/",
    b"http:///x",
    b"http://a/%zz",
    b"spiffe://",
    b"1.2.3.4",
    b"b\xfccher",
    b"b\xc3\xbccher",
    b"\xd8\x00",
    b"\xff\xfe",
    b"\x0a\x00\x00\x01\xff\x00\x00\x00",
    b"\x0a\x00\x00\x00\xff\x00\xff\x00",
    b"20300101000000Z",
];

/// Returns the value with one to three changes: tags, contents, removed, repeated, new or reordered elements, strings
/// in pieces, and occasionally any byte.
pub fn mutated(der: &[u8], random: &mut Random) -> Vec<u8> {
    let mut all = nodes(der).unwrap_or_else(|| vec![Node::Leaf(0x04, der.to_vec())]);
    for _ in 0..random.of(1..4) {
        let count = all.iter().map(Node::count).sum::<u64>();
        if count > 0 {
            change(&mut all, &mut random.of(0..count), random);
        }
    }
    let mut w = DerWriter::with_capacity(der.len());
    all.iter().for_each(|node| node.write(&mut w));
    let mut written = w.finish();
    if !written.is_empty() && random.once_in(8) {
        let at = random.of(0..written.len() as u64) as usize;
        written[at] ^= 1 << random.of(0..8);
    }
    written
}

/// Changes the node that `left` counts down to, in the order of writing.
fn change(all: &mut Vec<Node>, left: &mut u64, random: &mut Random) -> bool {
    for at in 0..all.len() {
        if *left == 0 {
            change_one(all, at, random);
            return true;
        }
        *left -= 1;
        if let Node::Group(_, inside) = &mut all[at]
            && change(inside, left, random)
        {
            return true;
        }
    }
    false
}

fn change_one(all: &mut Vec<Node>, at: usize, random: &mut Random) {
    let some = |random: &mut Random| Node::Leaf(*random.pick(&TAGS) & !0x20, random.pick(&CONTENTS).to_vec());
    match random.of(0..10) {
        0 => drop(all.remove(at)),
        1 => all.insert(at, all[at].clone()),
        2 => all.insert(at, some(random)),
        3 => all.swap(at, 0),
        4 | 5 => {
            let new = *random.pick(&TAGS);
            match &mut all[at] {
                Node::Leaf(tag, _) | Node::Group(tag, _) => *tag = new,
            }
        }
        6 => {
            if let Node::Leaf(tag, _) = &all[at] {
                all[at] = Node::Group(tag | 0x20, vec![all[at].clone()]);
            }
        }
        7 => {
            if let Node::Leaf(_, content) = &mut all[at]
                && !content.is_empty()
            {
                let octet = random.of(0..content.len() as u64) as usize;
                content[octet] ^= 1 << random.of(0..8);
            }
        }
        _ => match &mut all[at] {
            Node::Leaf(_, content) => *content = random.pick(&CONTENTS).to_vec(),
            Node::Group(..) => all[at] = some(random),
        },
    }
}

/// Encodes a value that contains others.
pub fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    build(tag, 0, |w| parts.iter().for_each(|part| w.raw(part)))
}

/// Separated by `|`.
const TEXTS: &str = "a.test|*.a.test|a..b|a.test.|.a.test|.|@|a@|@a.test|a@b.test|a@b..c|a b|bücher.test|1.2.3.4|::1|\
    10.0.0.0/8|10.1.2.3/8|http://a.test/|http://a..b/|http:///x|spiffe://|spiffe://a/b|urn:a:b|%zz|http://a/%zz|\
    http://[::1]/|ldap:///a|1.2.3|1.2.2147483648|1.2.3;UTF8:x|1.2.2147483648;UTF8:x|a&b*c";

/// Returns a text that a client may send as a name.
pub fn text(random: &mut Random) -> String {
    let texts: Vec<&str> = TEXTS.split('|').collect();
    let mut text = (*random.pick(&texts)).to_owned();
    if random.once_in(3) {
        let octets: Vec<char> = text.chars().collect();
        let at = random.of(0..octets.len() as u64) as usize;
        let other =
            *random.pick(&['.', '@', '%', ' ', '*', '_', '/', ':', '[', '\u{fc}', '\u{1}', '-', '0', '\\', '"', '#']);
        text = octets.iter().enumerate().map(|(n, c)| if n == at { other } else { *c }).collect();
    }
    text
}
