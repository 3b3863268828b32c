//! PEM (RFC 7468). The encoder writes lines of 64 characters. The parser is lenient, because users supply files in many
//! variants.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use zeroize::{Zeroize, Zeroizing};

use crate::error::{Error, Result};

/// Maximum length of the PEM text of a certificate, request or private key, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Maximum length of the DER in such a PEM text, in bytes.
pub const MAX_DER_BYTES: usize = MAX_TEXT_BYTES / 4 * 3;
/// Maximum number of PEM blocks in a text.
pub const MAX_BLOCKS: usize = 100;

/// The label of CRLs (RFC 7468 section 6).
pub const CRL_LABEL: &str = "X509 CRL";
/// Number of encoded bytes in one line of PEM.
const LINE_BYTES: usize = 48;
/// Number of Base64 characters in one line of PEM.
const LINE_CHARS: usize = 64;

/// The label and the decoded content of a PEM block.
pub type LabeledPemBlock = (String, Vec<u8>);

/// Returns the PEM text of `der`, with lines of 64 characters, LF line ends, and no final newline.
pub fn encode(label: &str, der: &[u8]) -> String {
    let mut text = Vec::with_capacity(2 * label.len() + 32 + der.len().div_ceil(LINE_BYTES) * (LINE_CHARS + 1));
    text.extend_from_slice(begin_line(label).as_bytes());
    text.push(b'\n');
    append_lines(&mut text, der, "\n");
    text.extend_from_slice(end_line(label).as_bytes());
    String::from_utf8(text).unwrap_or_default()
}

fn begin_line(label: &str) -> String {
    format!("-----BEGIN {label}-----")
}

fn end_line(label: &str) -> String {
    format!("-----END {label}-----")
}

fn append_lines(text: &mut Vec<u8>, der: &[u8], newline: &str) {
    for chunk in der.chunks(LINE_BYTES) {
        let mut line = [0; LINE_CHARS];
        // 48 bytes are encoded as exactly 64 characters, so the buffer is always large enough.
        let len = STANDARD.encode_slice(chunk, &mut line).unwrap_or(0);
        text.extend_from_slice(&line[..len]);
        text.extend_from_slice(newline.as_bytes());
        line.zeroize();
    }
}

/// Like [`encode`], for `len` bytes in pieces. The pieces are encoded lazily, so that a large CRL is not duplicated in
/// memory. `newline` separates lines; inside JSON it is the escape sequence of a line break.
pub fn encode_pieces<P: Iterator<Item = Bytes>>(
    label: &str,
    len: usize,
    pieces: P,
    newline: &'static str,
) -> (usize, impl Iterator<Item = Bytes> + use<P>) {
    let begin = begin_line(label) + newline;
    let end = end_line(label);
    let text = len.div_ceil(3) * 4 + len.div_ceil(LINE_BYTES) * newline.len();
    let total = begin.len() + text + end.len();
    let lines = PieceLines { pieces: Some(pieces), carried: Vec::with_capacity(LINE_BYTES), newline };
    (total, [Bytes::from(begin)].into_iter().chain(lines).chain([Bytes::from(end)]))
}

struct PieceLines<P> {
    /// The remaining pieces; `None` after the last one.
    pieces: Option<P>,
    /// Bytes left over from earlier pieces that do not fill a line yet.
    carried: Vec<u8>,
    newline: &'static str,
}

impl<P: Iterator<Item = Bytes>> Iterator for PieceLines<P> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let Some(piece) = self.pieces.as_mut()?.next() else {
            self.pieces = None;
            let mut text = Vec::with_capacity(LINE_CHARS + 2);
            append_lines(&mut text, &self.carried, self.newline);
            return Some(text.into());
        };
        let mut text = Vec::with_capacity((piece.len() / LINE_BYTES + 2) * (LINE_CHARS + 2));
        let first = (LINE_BYTES - self.carried.len()).min(piece.len());
        self.carried.extend_from_slice(&piece[..first]);
        if self.carried.len() == LINE_BYTES {
            append_lines(&mut text, &self.carried, self.newline);
            let rest = &piece[first..];
            let whole = rest.len() - rest.len() % LINE_BYTES;
            append_lines(&mut text, &rest[..whole], self.newline);
            self.carried.clear();
            self.carried.extend_from_slice(&rest[whole..]);
        }
        Some(text.into())
    }
}

/// Like [`encode`], with a final newline, so that files can be concatenated.
pub fn encode_file(label: &str, der: &[u8]) -> String {
    encode(label, der) + "\n"
}

/// Returns label and decoded content of all blocks, in order. Text around blocks, byte order marks, white space
/// around lines, and RFC 1421 headers are skipped. Lines end with LF or CRLF. A BEGIN line may directly follow END.
///
/// # Errors
/// `Invalid` for non-blank text without a block; for a truncated, mislabelled, encrypted or non-base64 block; for a
/// damaged BEGIN or END line outside of a block; and for more than [`MAX_BLOCKS`]. The error counts blocks from 0.
pub fn parse_blocks(text: &str) -> Result<Vec<LabeledPemBlock>> {
    read_blocks(text, MAX_BLOCKS, is_blank_or_after_a_block)
}

/// Like [`parse_blocks`], but also rejects text after the last block.
///
/// # Errors
/// `Invalid` also for non-blank text after the last block.
pub fn parse_only_blocks(text: &str) -> Result<Vec<LabeledPemBlock>> {
    read_blocks(text, MAX_BLOCKS, |_, rest| is_blank(rest))
}

/// Like [`parse_blocks`], for a local file: without a limit on blocks, and with text in any encoding around them.
///
/// # Errors
/// As [`parse_blocks`].
pub fn parse_file(file: &[u8]) -> Result<Vec<(String, Zeroizing<Vec<u8>>)>> {
    let blocks = match std::str::from_utf8(file) {
        Ok(text) => read_blocks(text, usize::MAX, is_blank_or_after_a_block)?,
        Err(_) => {
            // The text may contain a private key.
            let text = Zeroizing::new(String::from_utf8_lossy(file).into_owned());
            read_blocks(&text, usize::MAX, is_blank_or_after_a_block)?
        }
    };
    Ok(blocks.into_iter().map(|(label, content)| (label, Zeroizing::new(content))).collect())
}

/// Returns the certificates of a local file, in order.
///
/// # Errors
/// `Invalid` when it contains none, or as [`parse_file`].
pub fn parse_certificate_file(file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let refuse = |why: &str| Error::invalid(format!("must contain PEM certificates{why}"));
    let blocks = parse_file(file).map_err(|error| refuse(&format!(": {}", error.text())))?;
    let certificates = blocks.iter().filter(|(label, _)| label == "CERTIFICATE");
    let certificates: Vec<_> = certificates.map(|(_, der)| der.to_vec()).collect();
    if certificates.is_empty() { Err(refuse("")) } else { Ok(certificates) }
}

/// Returns the first private key of a local file: PKCS #8, PKCS #1 or SEC 1.
///
/// # Errors
/// `Invalid` when it contains no unencrypted key, or as [`parse_file`].
pub fn parse_private_key_file(file: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    let refuse = |why: &str| Error::invalid(format!("must contain an unencrypted private key in PEM{why}"));
    let blocks = parse_file(file).map_err(|error| refuse(&format!(": {}", error.text())))?;
    blocks.into_iter().find(|(label, _)| is_private_key(label)).map(|(_, der)| der).ok_or_else(|| refuse(""))
}

/// `true` for the labels of unencrypted private keys: PKCS #8, PKCS #1 and SEC 1.
pub fn is_private_key(label: &str) -> bool {
    matches!(label, "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY")
}

fn is_blank_or_after_a_block(found: usize, rest: &str) -> bool {
    found > 0 || is_blank(rest)
}

/// Reads up to `max` blocks. `may_end` gets the number of blocks read so far and the remaining text, and returns `true`
/// if that text may be ignored.
fn read_blocks(text: &str, max: usize, may_end: fn(usize, &str) -> bool) -> Result<Vec<LabeledPemBlock>> {
    let mut found = Vec::new();
    let mut rest = text;
    let problem = loop {
        match next_block(rest) {
            Ok(Some(_)) if found.len() >= max => break Error::invalid(format!("more than {max} PEM blocks")),
            Ok(Some((block, after))) => {
                found.push(block);
                rest = after;
            }
            Ok(None) if may_end(found.len(), rest) => return Ok(found),
            Ok(None) => break block_error(found.len(), "no BEGIN line"),
            Err(problem) => break block_error(found.len(), problem),
        }
    };
    // The blocks may contain private keys.
    found.iter_mut().for_each(|(_, content)| content.zeroize());
    Err(problem)
}

/// Returns the first PEM block and ignores the remaining text. Returns `None` if there is no block.
///
/// # Errors
/// `Invalid` when the first block is malformed, as in [`parse_blocks`].
pub fn parse_first_block(text: &str) -> Result<Option<(String, Vec<u8>)>> {
    Ok(next_block(text).map_err(|problem| block_error(0, problem))?.map(|(block, _)| block))
}

fn block_error(index: usize, problem: &str) -> Error {
    Error::invalid(format!("invalid PEM block at index {index}: {problem}"))
}

fn next_block(text: &str) -> Result<Option<(LabeledPemBlock, &str)>, &'static str> {
    let mut lines = PemLines { rest: text };
    let label = loop {
        let Some(line) = lines.next() else { return Ok(None) };
        if let Some(label) = line.strip_prefix("-----BEGIN ") {
            break label.strip_suffix("-----").ok_or("the BEGIN line does not end with five hyphens")?;
        }
        // A damaged BEGIN line is an error, because skipping it would lose its block.
        if line.contains("BEGIN") {
            return Err("a line contains BEGIN but is not a BEGIN line: -----BEGIN LABEL-----");
        }
        if line.starts_with("-----END ") {
            return Err("an END line has no BEGIN line before it");
        }
    };
    if label.is_empty() || label.len() > 64 || !label.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'-') {
        return Err("the BEGIN line has an invalid label");
    }
    // The capacity is set in advance: a reallocation would leave a copy of private key data in memory.
    let mut body = String::with_capacity(lines.rest.find("-----END ").unwrap_or(0));
    let mut headers = true;
    for line in lines.by_ref() {
        if let Some(end) = line.strip_prefix("-----END ") {
            let after = end.strip_prefix(label).and_then(|end| end.strip_prefix("-----"));
            let Some(after) = after.filter(|after| after.is_empty() || after.starts_with("-----BEGIN ")) else {
                body.zeroize();
                return Err("the END line does not match the BEGIN line");
            };
            let content = STANDARD.decode(&body).map_err(|_| "the content is not valid base64");
            body.zeroize();
            let rest = if after.is_empty() { lines.rest } else { suffix_from(text, after) };
            return Ok(Some(((label.to_owned(), content?), rest)));
        }
        if headers && line.contains(':') {
            if line.contains("ENCRYPTED") {
                return Err("encrypted blocks are not supported");
            }
            continue;
        }
        headers = headers && line.is_empty();
        body.extend(line.split([' ', '\t']));
    }
    body.zeroize();
    Err("the END line is missing")
}

/// Returns `text` from the start of its substring `part` on.
fn suffix_from<'a>(text: &'a str, part: &'a str) -> &'a str {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    text.get(start..).unwrap_or(part)
}

/// `true` for white space and byte order marks.
fn is_filler(character: char) -> bool {
    character.is_whitespace() || character == '\u{feff}'
}

fn is_blank(text: &str) -> bool {
    text.chars().all(is_filler)
}

/// Iterates over lines, trimmed of white space and byte order marks. `rest` is the text after the last line read.
struct PemLines<'a> {
    rest: &'a str,
}

impl<'a> Iterator for PemLines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        Some(line.trim_matches(is_filler))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pem_lines_have_64_columns_without_final_newline() {
        let text = encode("CERTIFICATE", &[0; 49]);
        let expected = format!("-----BEGIN CERTIFICATE-----\n{}\nAA==\n-----END CERTIFICATE-----", "A".repeat(64));
        assert_eq!(text, expected);
        assert_eq!(encode("X", &[]), "-----BEGIN X-----\n-----END X-----");
    }

    #[test]
    fn pem_variants_of_common_programs_are_read() {
        let block = encode("X", b"content");
        let expected = vec![("X".to_owned(), b"content".to_vec())];
        let crlf = format!("{}\r\n", block.replace('\n', "\r\n"));
        let indented = format!("\n\n   {}\n\n", block.replace('\n', "\n  "));
        let with_text = format!("Certificate:\n    Data: 1\n{block}\n");
        let with_headers = block.replacen("-----\n", "-----\nComment: a\n\n", 1);
        let with_mark = format!("\u{feff}{crlf}");
        for text in [&block, &crlf, &indented, &with_text, &with_headers, &with_mark] {
            assert_eq!(parse_blocks(text).unwrap(), expected, "{text}");
            assert_eq!(parse_first_block(text).unwrap(), expected.first().cloned());
        }
        let two = format!("{block}\nbetween\n{block}\nafter\n");
        assert_eq!(parse_blocks(&two).unwrap().len(), 2);
        assert!(parse_only_blocks(&two).unwrap_err().text().contains("index 2: no BEGIN line"));
        let latin1 = [b"# M\xfcller\n", block.repeat(MAX_BLOCKS + 1).as_bytes(), b"\n# M\xfcller"].concat();
        assert_eq!(parse_file(&latin1).unwrap().len(), MAX_BLOCKS + 1);
        assert_eq!(parse_first_block(&format!("{block}\nafter")).unwrap(), expected.first().cloned());
        for joined in
            [format!("{block}{block}"), format!("\u{feff}{block}\n\u{feff}{block}\n\u{feff}"), format!("{crlf}{crlf}")]
        {
            assert_eq!(parse_blocks(&joined).unwrap(), [&expected[..], &expected].concat(), "{joined}");
        }
        assert_eq!(parse_blocks(" \n").unwrap(), []);
        assert_eq!(parse_blocks(&format!("{block}\n").repeat(MAX_BLOCKS)).unwrap().len(), MAX_BLOCKS);
    }

    #[test]
    fn broken_blocks_are_refused() {
        let block = encode("X", b"content");
        let cases = [
            ("no block at all", "garbage".to_owned(), "index 0"),
            ("literal backslash n", block.replace('\n', "\\n"), "label"),
            ("cut", block[..block.len() - 20].to_owned(), "END line is missing"),
            ("quoted", format!("> {block}\n{block}"), "a line contains BEGIN"),
            ("other dashes", format!("{}\n{block}", block.replace("-----", "—–")), "a line contains BEGIN"),
            ("no hyphens", format!("{block}\nBEGIN X\n{block}"), "index 1: a line contains BEGIN"),
            ("no BEGIN line", format!("{}\n{block}", &block[block.find('\n').unwrap()..]), "an END line has no BEGIN"),
            ("text after END", format!("{block}after\n{block}"), "does not match"),
            ("another END", block.replace("END X", "END Y"), "does not match"),
            ("not base64", block.replace("Y29", "*29"), "base64"),
            ("too many", format!("{block}\n").repeat(MAX_BLOCKS + 1), "more than 100 PEM blocks"),
            ("encrypted", block.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1), "encrypted"),
        ];
        for (name, text, problem) in cases {
            let error = parse_blocks(&text).unwrap_err();
            assert!(error.text().contains(problem), "{name}: {error}");
            assert!(parse_only_blocks(&text).is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn pem_in_pieces_equals_pem_at_once(cuts in prop::collection::vec(0..200_usize, 0..20)) {
            let der: Vec<u8> = (0..cuts.iter().sum::<usize>()).map(|n| n as u8).collect();
            let mut rest = &der[..];
            let pieces: Vec<Bytes> = cuts.iter().map(|n| Bytes::copy_from_slice(rest.split_off(..*n).unwrap())).collect();
            for (newline, expected) in [("\n", encode("X509 CRL", &der)), ("\\n", encode("X509 CRL", &der).replace('\n', "\\n"))] {
                let (len, text) = encode_pieces("X509 CRL", der.len(), pieces.clone().into_iter(), newline);
                let text = text.collect::<Vec<_>>().concat();
                prop_assert_eq!(len, text.len());
                prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
            }
        }

        #[test]
        fn pem_blocks_read_back(der in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(parse_blocks(&encode("A B", &der)).unwrap(), vec![("A B".to_owned(), der)]);
        }

        #[test]
        fn bundle_of_any_text_does_not_panic(text in "(-----(BEGIN|END) [A-Z]{0,3}-----|[ -~\\r\\n]{0,20}|\\n){0,8}") {
            let _ = parse_blocks(&text);
            let _ = parse_first_block(&text);
        }
    }
}
