//! Requests that their caller may send again: a caller names a request by a key of its own, and with the same key it
//! has the same certificate, for [a day](AnsweredRow::LIFE) and on every node.
//!
//! What was answered is recorded in the unit of the certificate, under a key that is there once: of two requests at the
//! same time one is stored, and the other answers with what that one was. Nothing is held meanwhile. What the caller
//! calls a request, who asked and what for are hashed together; none of it is stored.
//!
//! A new key whose first octets are a time finds its place behind those before it, and costs an index as little as
//! a serial number does: keys that are UUIDs of version 7 keep their time, all others are spread.
//!
//! Refused are another request under a key that is taken; an answer with a private key, which is stored nowhere; and
//! certificates that are not stored, of which nobody could say later what they were. Called by the wire before a
//! certificate is made, and by `release` when a key was taken meanwhile.

use aws_lc_rs::digest::{Context, SHA256};

use super::issued::{Issued, Lease};
use crate::clock::{Time, rfc3339};
use crate::documents::MountId;
use crate::error::{Error, Result, Warnings};
use crate::pki::mount::view::View;
use crate::pki::store::{AnsweredRow, CertificateRow, StoredCertificate};
use crate::pki::tools::Tools;
use crate::pki::values::renewal;
use crate::x509::serial::Serial;

/// What errors call the key.
pub const FIELD: &str = "Idempotency-Key";
/// Octets of a stored key that are a time: milliseconds since 1970, as a UUID of version 7 begins.
const OF_TIME: usize = 6;

/// A request that may be sent again.
#[derive(Clone, Debug)]
pub struct Repeatable {
    key: [u8; 32],
    request: [u8; 32],
    /// Its answer has a private key.
    makes_key: bool,
}

/// Who asks, as repeats tell callers apart.
#[derive(Clone, Copy, Debug)]
pub enum Asker<'a> {
    /// An entity, whichever of its tokens it uses: who has lost an answer may have lost the token, too.
    Entity(&'a str),
    /// A token without one, as records name it.
    Token(&'a str),
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct AskedFor<'a> {
    /// The path, in canonical spelling.
    pub path: &'a str,
    /// The body, in one form whatever form it came in.
    pub body: &'a [u8],
    /// Whether the key of the certificate is made here.
    pub makes_key: bool,
}

impl Repeatable {
    /// A request to a mount by the key that its caller gives it.
    pub fn new(mount: MountId, asker: Asker<'_>, key: &str, asked: AskedFor<'_>) -> Self {
        let (kind, id) = match asker {
            Asker::Entity(id) => ("entity", id),
            Asker::Token(id) => ("token", id),
        };
        let mut hashed = hash(&[&mount.0.to_be_bytes(), kind.as_bytes(), id.as_bytes(), key.as_bytes()]);
        hashed[..OF_TIME].copy_from_slice(&time_of(key).unwrap_or_default());
        Self { key: hashed, request: hash(&[asked.path.as_bytes(), asked.body]), makes_key: asked.makes_key }
    }

    /// What is recorded beside the certificate that answers it.
    pub(crate) fn row(&self, serial: Serial, lease: Option<&Lease>, now: Time) -> AnsweredRow {
        AnsweredRow {
            key: self.key,
            request: self.request,
            serial,
            lease: lease.map(|lease| lease.id.clone()),
            expires_at: now.unix_timestamp() + AnsweredRow::LIFE,
        }
    }
}

/// Refuses to remember a request whose certificate is not stored.
///
/// # Errors
/// `Invalid`, with the reason `why` that nothing is.
pub fn unless_stored(store: bool, repeatable: Option<&Repeatable>, why: &str) -> Result<()> {
    match repeatable {
        Some(_) if !store => refuse(&format!("{why}, so that a repeated request could not be answered")),
        _ => Ok(()),
    }
}

/// What a request was answered with before; `None` when it was not.
///
/// # Errors
/// `Invalid` when the key stands for another request, or the answer cannot be given again; `Unavailable` from storage.
pub async fn earlier(repeatable: &Repeatable, view: &View, tools: &Tools) -> Result<Option<Issued>> {
    let now = tools.clock.now();
    let found = tools.store.answered(repeatable.key).await?;
    let Some(row) = found.filter(|row| now.unix_timestamp() < row.expires_at) else { return Ok(None) };
    if row.request != repeatable.request {
        return refuse("was used for another request, on another path or with another body");
    }
    let refuse = |why: &str| refuse(&format!("the request was answered with certificate {}, {why}", row.serial));
    if repeatable.makes_key {
        return refuse("whose private key is stored nowhere; another certificate takes another key");
    }
    let Some(stored) = tools.store.certificate(view.mount, row.serial).await? else {
        return refuse("which is not stored any more");
    };
    let Some(signer) = view.signer(&stored.row.issuer).cloned() else {
        return refuse("whose issuer is gone");
    };
    let warnings = warnings(&stored, now);
    let StoredCertificate { row: certificate, .. } = stored;
    let CertificateRow { serial, issued_at, not_before, not_after, .. } = certificate;
    let seconds = u64::try_from(not_after - now.unix_timestamp()).unwrap_or(0);
    Ok(Some(Issued {
        serial,
        not_before,
        not_after,
        renew_after: renewal::time(&serial, issued_at, not_before, not_after),
        der: certificate.der,
        issued_at: now.unix_timestamp(),
        signer,
        key: None,
        warnings,
        lease: row.lease.map(|id| Lease { id, seconds }),
        repeated: true,
    }))
}

/// What has become of the certificate since.
fn warnings(stored: &StoredCertificate, now: Time) -> Warnings {
    let mut warnings = Warnings::default();
    if let Some(revocation) = &stored.revocation {
        warnings.add(format!("the certificate was revoked at {}", rfc3339(revocation.row.revoked_at)));
    }
    if stored.row.not_after < now.unix_timestamp() {
        warnings.add("the certificate has expired");
    }
    warnings
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::invalid(format!("{FIELD}: {why}")))
}

/// The time that a UUID of version 7 begins with (RFC 9562 5.7).
fn time_of(key: &str) -> Option<[u8; OF_TIME]> {
    let bytes = key.as_bytes();
    let is_uuid = bytes.len() == 36 && [8, 13, 18, 23].iter().all(|&at| bytes[at] == b'-');
    if !is_uuid || bytes[14] != b'7' {
        return None;
    }
    let mut digits = bytes[..13].iter().filter(|byte| **byte != b'-').map(|byte| char::from(*byte).to_digit(16));
    let mut time = [0; OF_TIME];
    for octet in &mut time {
        *octet = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    Some(time)
}

/// SHA-256 of parts, each of which ends where it does.
fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeatable(mount: i64, asker: Asker<'_>, key: &str, path: &str, body: &str) -> Repeatable {
        Repeatable::new(MountId(mount), asker, key, AskedFor { path, body: body.as_bytes(), makes_key: false })
    }

    #[test]
    fn whoever_asks_has_keys_of_their_own_and_a_request_is_its_path_and_its_body() {
        let first = repeatable(1, Asker::Entity("a"), "k", "pki/sign/web", "{}");
        let again = repeatable(1, Asker::Entity("a"), "k", "pki/sign/web", "{}");
        assert_eq!((first.key, first.request), (again.key, again.request));
        for (mount, asker, key) in [
            (2, Asker::Entity("a"), "k"),
            (1, Asker::Entity("b"), "k"),
            (1, Asker::Token("a"), "k"),
            (1, Asker::Entity("a"), "l"),
            (1, Asker::Entity(""), "ak"),
            (1, Asker::Entity("ak"), ""),
        ] {
            assert_ne!(repeatable(mount, asker, key, "pki/sign/web", "{}").key, first.key, "{asker:?} {key}");
        }
        for (path, body) in [("pki/sign/we", "{}"), ("pki/sign/web", "{ }"), ("pki/sign/web{", "}")] {
            let other = repeatable(1, Asker::Entity("a"), "k", path, body);
            assert_eq!((other.key == first.key, other.request == first.request), (true, false), "{path}");
        }
    }

    #[test]
    fn keys_that_begin_with_a_time_are_stored_in_its_order() {
        let key = |text: &str| repeatable(1, Asker::Entity("a"), text, "p", "").key;
        let early = key("018f0000-0000-7abc-8def-0123456789ab");
        let late = key("018f0000-0001-7000-8000-000000000000");
        assert!(early[..6] == [0x01, 0x8f, 0, 0, 0, 0] && late[..6] == [0x01, 0x8f, 0, 0, 0, 1] && early < late);
        assert_ne!(early[6..], key("018f0000-0000-7abc-8def-0123456789ac")[6..]);
        for other in [
            "018f0000-0000-4abc-8def-0123456789ab",
            "018f0000-0000-7abc-8def-0123456789a",
            "x18f0000-0000-7abc-8def-0123456789ab",
            "",
        ] {
            assert_eq!(key(other)[..6], [0; 6], "{other}");
        }
    }
}
