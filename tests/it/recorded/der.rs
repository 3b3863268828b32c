//! A minimal DER reader (X.690), independent of the server's.

#[derive(Clone, Copy)]
pub struct Element<'d> {
    pub tag: u8,
    pub content: &'d [u8],
    /// Tag, length and content.
    pub whole: &'d [u8],
}

pub fn first(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = if length < 0x80 {
        (usize::from(length), rest)
    } else {
        let (octets, rest) = rest.split_at_checked(usize::from(length & 0x7f)).filter(|(o, _)| o.len() <= 4)?;
        (octets.iter().fold(0, |length, octet| length << 8 | usize::from(*octet)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    let whole = &bytes[..bytes.len() - rest.len()];
    Some((Element { tag, content, whole }, rest))
}

pub fn elements(mut bytes: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (element, rest) = first(bytes)?;
        found.push(element);
        bytes = rest;
    }
    Some(found)
}

pub fn is_one_sequence(bytes: &[u8]) -> bool {
    first(bytes).is_some_and(|(element, rest)| element.tag == 0x30 && rest.is_empty())
}

impl<'d> Element<'d> {
    pub fn children(&self) -> Option<Vec<Element<'d>>> {
        elements(self.content)
    }

    /// The contents of a BIT STRING with whole bytes, or of an OCTET STRING.
    pub fn octets(&self) -> &'d [u8] {
        if self.tag == 3 { self.content.get(1..).unwrap_or_default() } else { self.content }
    }

    pub fn oid(&self) -> String {
        let mut arcs: Vec<u64> = Vec::new();
        let mut arc = 0;
        for octet in self.content {
            arc = arc << 7 | u64::from(octet & 0x7f);
            if octet & 0x80 == 0 {
                if arcs.is_empty() {
                    arcs.push((arc / 40).min(2));
                    arc -= arcs[0] * 40;
                }
                arcs.push(arc);
                arc = 0;
            }
        }
        arcs.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
    }

    pub fn hex(&self) -> String {
        hex(self.content)
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
