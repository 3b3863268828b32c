//! Idempotent requests: a client that repeats a request with the same `Idempotency-Key` gets the same certificate, for
//! [a day](RecordedResponseRow::LIFETIME_SECONDS) and from every node.
//!
//! The answered request is recorded in the same commit as the certificate, under a unique key, so no lock is needed: of
//! two concurrent requests with the same key, one is stored, and the other returns the certificate of the first. Only
//! hashes of key, caller and request are stored. A used key is rejected for a different request. A key is also rejected
//! if the response has a private key, or if the certificate is not stored.

use aws_lc_rs::digest::{Context, SHA256};

use super::issued::{CertificateLease, IssuedCertificate};
use crate::clock::{Time, format_rfc3339};
use crate::documents::MountId;
use crate::error::{Error, Result, Warnings};
use crate::pki::engine_deps::EngineDeps;
use crate::pki::mount::view::MountView;
use crate::pki::store::{CertificateRow, RecordedResponseRow, StoredCertificate};
use crate::x509::serial::Serial;

/// Name of the request header with the idempotency key.
pub const IDEMPOTENCY_KEY_HEADER: &str = "Idempotency-Key";
/// Length in bytes of the time prefix of a stored key: milliseconds since 1970, as in UUID version 7.
const TIME_PREFIX_BYTES: usize = 6;

/// A request with an idempotency key.
#[derive(Clone, Debug)]
pub struct IdempotentRequest {
    key: [u8; 32],
    request: [u8; 32],
    /// `true` if the response contains a private key.
    generates_key: bool,
}

/// The caller of an idempotent request. Each caller has its own idempotency keys.
#[derive(Clone, Copy, Debug)]
pub enum IdempotencyCaller<'a> {
    /// Id of the caller's entity. All tokens of an entity count as one caller: a client that lost the response may have
    /// lost its token too.
    Entity(&'a str),
    /// A token without an entity, as requester records identify it.
    Token(&'a str),
}

/// The content of an idempotent request. A repeated request must have the same content.
#[derive(Clone, Copy, Debug)]
pub struct IdempotentContent<'a> {
    /// Request path in canonical spelling.
    pub path: &'a str,
    /// Canonical encoding of the request body.
    pub body: &'a [u8],
    /// `true` if the server generates the private key.
    pub generates_key: bool,
}

impl IdempotentRequest {
    /// Hashes a request and its idempotency key. If the key is a UUID version 7, its timestamp becomes the prefix of
    /// the stored key, so that new rows are appended to the database index.
    pub fn new(mount: MountId, caller: IdempotencyCaller<'_>, key: &str, content: IdempotentContent<'_>) -> Self {
        let (kind, id) = match caller {
            IdempotencyCaller::Entity(id) => ("entity", id),
            IdempotencyCaller::Token(id) => ("token", id),
        };
        let mut hashed = hash_parts(&[&mount.0.to_be_bytes(), kind.as_bytes(), id.as_bytes(), key.as_bytes()]);
        hashed[..TIME_PREFIX_BYTES].copy_from_slice(&uuid_time_prefix(key).unwrap_or_default());
        Self {
            key: hashed,
            request: hash_parts(&[content.path.as_bytes(), content.body]),
            generates_key: content.generates_key,
        }
    }

    /// Returns the row that is recorded together with the certificate.
    pub(crate) fn row(&self, serial: Serial, lease: Option<&CertificateLease>, now: Time) -> RecordedResponseRow {
        RecordedResponseRow {
            key: self.key,
            request: self.request,
            serial,
            lease: lease.map(|lease| lease.id.clone()),
            expires_at: now.unix_timestamp() + RecordedResponseRow::LIFETIME_SECONDS,
        }
    }
}

/// Rejects an idempotent request if its certificate is not stored.
///
/// # Errors
/// `Invalid`, with the reason `why` the certificate is not stored.
pub fn require_stored(store: bool, idempotent_request: Option<&IdempotentRequest>, why: &str) -> Result<()> {
    match idempotent_request {
        Some(_) if !store => {
            refuse(&format!("{why}, so a repeated request could not be answered; send the request without this header"))
        }
        _ => Ok(()),
    }
}

/// Returns the certificate of an earlier request with the same idempotency key, if any.
///
/// # Errors
/// `Invalid` when the key was used for a different request, or the response cannot be repeated; `Unavailable` from
/// storage.
pub async fn find_recorded_response(
    idempotent_request: &IdempotentRequest,
    view: &MountView,
    deps: &EngineDeps,
) -> Result<Option<IssuedCertificate>> {
    let now = deps.clock.now();
    let found = deps.store.recorded_response(idempotent_request.key).await?;
    let Some(row) = found.filter(|row| now.unix_timestamp() < row.expires_at) else { return Ok(None) };
    if row.request != idempotent_request.request {
        return refuse("was used for another request, on another path or with another body");
    }
    let refuse = |why: &str| refuse(&format!("the request was answered with certificate {}, {why}", row.serial));
    if idempotent_request.generates_key {
        return refuse("whose private key is not stored; use a new idempotency key for another certificate");
    }
    let Some(stored) = deps.store.certificate(view.mount, row.serial).await? else {
        return refuse("which has been deleted");
    };
    let Some(signer) = view.signer(&stored.row.issuer).cloned() else {
        return refuse("whose issuer was deleted");
    };
    let warnings = repeated_response_warnings(&stored, now);
    let CertificateRow { der, serial, issued_at, not_before, not_after, .. } = stored.row;
    let seconds = u64::try_from(not_after - now.unix_timestamp()).unwrap_or(0);
    let lease = row.lease.map(|id| CertificateLease { id, seconds });
    let issued = IssuedCertificate::new(der, serial, not_before..=not_after, signer, issued_at);
    Ok(Some(IssuedCertificate { issued_at: now.unix_timestamp(), warnings, lease, repeated: true, ..issued }))
}

fn repeated_response_warnings(stored: &StoredCertificate, now: Time) -> Warnings {
    let mut warnings = Warnings::default();
    if let Some(revocation) = &stored.revocation {
        warnings.add(format!("the certificate was revoked at {}", format_rfc3339(revocation.row.revoked_at)));
    }
    if stored.row.not_after < now.unix_timestamp() {
        warnings.add("the certificate has expired");
    }
    warnings
}

fn refuse<T>(why: &str) -> Result<T> {
    Err(Error::invalid(format!("{IDEMPOTENCY_KEY_HEADER}: {why}")))
}

/// Returns the timestamp prefix of a UUID version 7 (RFC 9562 5.7); `None` for other keys.
fn uuid_time_prefix(key: &str) -> Option<[u8; TIME_PREFIX_BYTES]> {
    let bytes = key.as_bytes();
    let is_uuid = bytes.len() == 36 && [8, 13, 18, 23].iter().all(|&at| bytes[at] == b'-');
    if !is_uuid || bytes[14] != b'7' {
        return None;
    }
    let mut digits = bytes[..13].iter().filter(|byte| **byte != b'-').map(|byte| char::from(*byte).to_digit(16));
    let mut time = [0; TIME_PREFIX_BYTES];
    for octet in &mut time {
        *octet = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    Some(time)
}

/// Returns the SHA-256 hash of `parts`, each prefixed with its length.
fn hash_parts(parts: &[&[u8]]) -> [u8; 32] {
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

    fn idempotent_request(
        mount: i64,
        caller: IdempotencyCaller<'_>,
        key: &str,
        path: &str,
        body: &str,
    ) -> IdempotentRequest {
        IdempotentRequest::new(
            MountId(mount),
            caller,
            key,
            IdempotentContent { path, body: body.as_bytes(), generates_key: false },
        )
    }

    #[test]
    fn idempotent_request_depends_on_caller_path_and_body() {
        let first = idempotent_request(1, IdempotencyCaller::Entity("a"), "k", "pki/sign/web", "{}");
        let again = idempotent_request(1, IdempotencyCaller::Entity("a"), "k", "pki/sign/web", "{}");
        assert_eq!((first.key, first.request), (again.key, again.request));
        for (mount, caller, key) in [
            (2, IdempotencyCaller::Entity("a"), "k"),
            (1, IdempotencyCaller::Entity("b"), "k"),
            (1, IdempotencyCaller::Token("a"), "k"),
            (1, IdempotencyCaller::Entity("a"), "l"),
            (1, IdempotencyCaller::Entity(""), "ak"),
            (1, IdempotencyCaller::Entity("ak"), ""),
        ] {
            assert_ne!(idempotent_request(mount, caller, key, "pki/sign/web", "{}").key, first.key, "{caller:?} {key}");
        }
        for (path, body) in [("pki/sign/we", "{}"), ("pki/sign/web", "{ }"), ("pki/sign/web{", "}")] {
            let other = idempotent_request(1, IdempotencyCaller::Entity("a"), "k", path, body);
            assert_eq!((other.key == first.key, other.request == first.request), (true, false), "{path}");
        }
    }

    #[test]
    fn idempotency_keys_of_uuid_v7_are_stored_in_time_order() {
        let key = |text: &str| idempotent_request(1, IdempotencyCaller::Entity("a"), text, "p", "").key;
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
