//! Renders an entry as one JSON object, in the format of the audit logs of Vault and OpenBao.
//!
//! `type` is `request` for an intent or refusal, and `response` for an outcome. `auth` describes the caller, `request`
//! the request, `response` the outcome; `error` has the messages of a rejected request (`audit/message_mask.rs`). Some
//! bodies appear only as `http_content_type`, `http_raw_body` (a hash) and `http_raw_body_size`: those that are not
//! JSON, unparsed request bodies above 16 KiB, and those whose hashes would take too much space. A streamed body has
//! only the type and, if known, the size.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use super::entry::{
    AuditCaller, AuditData, AuditEntry, AuditOutcome, AuditRefusal, AuditRequest, AuditResponse, AuditStep,
};
use super::mask::{Mask, MaskExceptions, write_json_text};
use super::message_mask::RequestTexts;
use crate::auth::token::{TokenResponse, is_token, is_token_or_accessor};
use crate::auth::wrapping::WrapInfo;
use crate::clock::{Time, format_rfc3339, push_rfc3339};
use crate::error::Kind;
use crate::fields::Fields;
use crate::secret::{PartlySecret, Secret};

/// Maximum length of a request body whose values are hashed one by one, in bytes. The limit is needed because a hash is
/// twenty times as long as a short text.
const MAX_HASHED_BODY_BYTES: usize = 16 * 1024;

/// Media type for parsed request fields that are recorded as one hash.
const JSON_MEDIA_TYPE: &str = "application/json";
/// Request path and request id in a test line, which belongs to no request. Vault writes such a line when a device is
/// enabled.
const TEST_PATH_AND_ID: (&str, &str) = ("sys/audit/test", "00000000-0000-0000-0000-000000000000");

/// The format of a device's entries.
pub(super) struct EntryFormat {
    mask: Mask,
    /// `true` to record only the number of names in a LIST response.
    counts_lists: bool,
    /// Identifies this format in the cache of rendered callers; unique in the process.
    id: usize,
}

/// The rendered form of a caller and its token.
struct CallerJson {
    auth: Vec<u8>,
    request: Vec<u8>,
}

/// The rendered forms of one caller, by `EntryFormat::id`, as a linked list.
#[derive(Default)]
struct CallerJsonCache(OnceLock<Box<(usize, CallerJson, CallerJsonCache)>>);

impl CallerJsonCache {
    /// Returns the rendered form of the caller for a format. Each form is rendered only once.
    fn get_or_render(&self, format: usize, render: impl Fn() -> CallerJson) -> &CallerJson {
        let mut node = self;
        loop {
            let (of, caller_json, next) = &**node.0.get_or_init(|| Box::new((format, render(), Self::default())));
            if *of == format {
                return caller_json;
            }
            node = next;
        }
    }
}

impl EntryFormat {
    pub(super) fn new(mask: Mask, counts_lists: bool) -> Self {
        static NEXT_ID: AtomicUsize = AtomicUsize::new(0);
        Self { mask, counts_lists, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) }
    }

    pub(super) fn hash(&self, text: &str) -> String {
        self.mask.hash(text.as_bytes())
    }

    /// Renders the part of an entry that describes the request; all entries of the request share it.
    pub(super) fn render_request(&self, request: &AuditRequest<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(1536);
        let mut line = JsonObjectWriter { out: &mut out, empty: true };
        let unknown = CallerJsonCache::default();
        let known = request.caller.as_ref().and_then(|caller| caller.derived);
        // `derived` caches the rendered caller for as long as the caller itself is cached.
        let caller_json = known
            .map_or(&unknown, |derived| derived.get(CallerJsonCache::default))
            .get_or_render(self.id, || self.render_caller(request));
        line.write_object("auth", |auth| auth.write_rendered_members(&caller_json.auth));
        line.write_object("request", |object| {
            object.write_json("id", request.id);
            if let Some(trace_id) = request.trace_id {
                object.write_json("trace_id", trace_id);
            }
            object.write_json("operation", request.operation);
            object.write_mount(request);
            object.write_rendered_members(&caller_json.request);
            object.write_object("namespace", |namespace| namespace.write_json("id", "root"));
            self.write_path(object.write_name("path"), request.path);
            let clear = request.mount.map_or(&[][..], |mount| &mount.audit_non_hmac_request_keys);
            self.write_data(
                object,
                request.data,
                MaskExceptions { clear, ..MaskExceptions::default() },
                BodyOrigin::Caller,
            );
            if let Some(address) = request.remote_address {
                object.write_json("remote_address", &address);
            }
        });
        out
    }

    /// Renders an entry; `request_part` is the result of [`EntryFormat::render_request`] for its request.
    pub(super) fn render_line(&self, request_part: &[u8], entry: &AuditEntry<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(request_part.len() + 2048);
        out.push(b'{');
        let mut line = JsonObjectWriter { out: &mut out, empty: true };
        line.write_name("time").push(b'"');
        push_rfc3339(line.out, entry.time);
        line.out.push(b'"');
        let entry_type = if matches!(entry.step, AuditStep::Outcome(_)) { "response" } else { "request" };
        line.write_json("type", entry_type);
        line.out.push(b',');
        line.out.extend_from_slice(request_part);
        match entry.step {
            AuditStep::Intent => {}
            AuditStep::Refusal(refusal) => self.write_error(&mut line, entry.request, refusal),
            AuditStep::Outcome(outcome) => self.write_outcome(&mut line, entry.request, outcome),
        }
        out.extend_from_slice(b"}\n");
        out
    }

    /// Renders a test line, which the device writes to check if its output works again. The line contains the time
    /// since which the device has accepted no entry.
    pub(super) fn render_test_line(&self, now: Time, since: Time) -> Vec<u8> {
        let (path, id) = TEST_PATH_AND_ID;
        let request = AuditRequest { id, operation: "update", path, ..AuditRequest::default() };
        let text = format!("audit: no entry accepted since {}", format_rfc3339(since));
        let refusal = AuditRefusal { kind: Kind::Unavailable, texts: vec![&text] };
        let entry = AuditEntry { time: now, request: &request, step: AuditStep::Refusal(&refusal) };
        self.render_line(&self.render_request(&request), &entry)
    }

    /// Renders a path, with hashes of tokens and accessors.
    fn write_path(&self, out: &mut Vec<u8>, path: &str) {
        if !path.split('/').any(is_token_or_accessor) {
            return write_json_text(out, path);
        }
        out.push(b'"');
        for (n, segment) in path.split('/').enumerate() {
            if n > 0 {
                out.push(b'/');
            }
            let start = out.len();
            match is_token_or_accessor(segment) {
                true if is_token(segment) => self.mask.write_text(out, segment),
                true => self.mask.write_accessor(out, segment),
                false => write_json_text(out, segment),
            }
            // Removes the quotes around the segment.
            out.pop();
            out.remove(start);
        }
        out.push(b'"');
    }

    fn render_caller(&self, request: &AuditRequest<'_>) -> CallerJson {
        let caller = request.caller.as_ref();
        let token = request.token.map(|token| render_value(|out| self.mask.write_text(out, token)));
        let accessor = caller.map(|caller| caller.accessor).filter(|accessor| !accessor.is_empty());
        let accessor = accessor.map(|accessor| render_value(|out| self.mask.write_accessor(out, accessor)));
        let mut caller_json = CallerJson { auth: Vec::with_capacity(512), request: Vec::with_capacity(256) };
        let mut auth = JsonObjectWriter { out: &mut caller_json.auth, empty: true };
        auth.write_rendered("client_token", token.as_deref());
        auth.write_rendered("accessor", accessor.as_deref());
        if let Some(caller) = caller {
            self.write_caller(&mut auth, caller);
        }
        let mut request_json = JsonObjectWriter { out: &mut caller_json.request, empty: true };
        request_json.write_rendered("client_token", token.as_deref());
        request_json.write_rendered("client_token_accessor", accessor.as_deref());
        caller_json
    }

    fn write_caller(&self, auth: &mut JsonObjectWriter<'_>, caller: &AuditCaller<'_>) {
        auth.write_json("display_name", &caller.display_name);
        let all: Vec<_> = caller.policies.iter().chain(caller.identity_policies).collect();
        auth.write_json("policies", &all);
        auth.write_json("token_policies", caller.policies);
        if !caller.identity_policies.is_empty() {
            auth.write_json("identity_policies", caller.identity_policies);
        }
        if let Some(metadata) = caller.metadata {
            auth.write_json("metadata", metadata);
        }
        auth.write_json("entity_id", caller.entity_id);
        let seconds = |from: Time, to: Time| (to - from).whole_seconds().max(0);
        if let Some(created) = caller.created_at {
            auth.write_json("token_issue_time", &format_rfc3339(created));
            auth.write_json("token_ttl", &caller.expires_at.map_or(0, |end| seconds(created, end)));
        }
    }

    fn write_outcome(&self, line: &mut JsonObjectWriter<'_>, request: &AuditRequest<'_>, outcome: &AuditOutcome<'_>) {
        line.write_object("response", |object| {
            object.write_json("status", &outcome.status);
            object.write_mount(request);
            if let Ok(response) = &outcome.answer {
                self.write_response(object, request, response);
            }
        });
        if let Err(refusal) = &outcome.answer {
            self.write_error(line, request, refusal);
        }
    }

    fn write_response(
        &self,
        object: &mut JsonObjectWriter<'_>,
        request: &AuditRequest<'_>,
        response: &AuditResponse<'_>,
    ) {
        let clear = request.mount.map_or(&[][..], |mount| &mount.audit_non_hmac_response_keys);
        let counts_lists = self.counts_lists && request.operation == "list";
        self.write_data(
            object,
            response.data,
            MaskExceptions { clear, counts_lists, repeats: true, max_bytes: None },
            BodyOrigin::Server,
        );
        if let Some(token_response) = response.auth {
            object.write_object("auth", |auth| self.write_token_response(auth, token_response));
        }
        if let Some(lease) = response.lease {
            object.write_object("secret", |secret| secret.write_json("lease_id", lease));
        }
        if let Some(wrapping) = response.wrapping {
            object.write_object("wrap_info", |info| self.write_wrapping(info, wrapping));
        }
        if !response.warnings.is_empty() {
            let sent = RequestTexts::of(request.data);
            let warnings: Vec<_> =
                response.warnings.iter().map(|warning| sent.mask_message(&self.mask, warning)).collect();
            object.write_json("warnings", &warnings);
        }
    }

    fn write_error(&self, line: &mut JsonObjectWriter<'_>, request: &AuditRequest<'_>, refusal: &AuditRefusal<'_>) {
        match &refusal.texts[..] {
            [] => line.write_json("error", describe_kind(refusal.kind)),
            texts => {
                line.write_json("error", &RequestTexts::of(request.data).mask_message(&self.mask, &texts.join("; ")))
            }
        }
    }

    fn write_token_response(&self, auth: &mut JsonObjectWriter<'_>, token_response: &TokenResponse) {
        self.mask.write_secret(auth.write_name("client_token"), &token_response.token);
        self.mask.write_accessor(auth.write_name("accessor"), &token_response.accessor);
        auth.write_rendered_members(&token_response.members_json());
    }

    fn write_wrapping(&self, info: &mut JsonObjectWriter<'_>, wrapping: &WrapInfo) {
        self.mask.write_secret(info.write_name("token"), &wrapping.token);
        self.mask.write_accessor(info.write_name("accessor"), &wrapping.accessor);
        info.write_json("ttl", &wrapping.ttl.as_secs());
        info.write_json("creation_time", &format_rfc3339(wrapping.creation_time));
        info.write_json("creation_path", &wrapping.creation_path);
        if let Some(accessor) = &wrapping.wrapped_accessor {
            self.mask.write_accessor(info.write_name("wrapped_accessor"), accessor);
        }
    }

    fn write_data(
        &self,
        object: &mut JsonObjectWriter<'_>,
        data: AuditData<'_>,
        exceptions: MaskExceptions<'_>,
        by: BodyOrigin,
    ) {
        match data {
            AuditData::None => {}
            AuditData::Fields(fields) => self.write_fields(object.write_name("data"), fields, exceptions),
            AuditData::Json(value) => self.mask.write_value(object.write_name("data"), value, exceptions),
            AuditData::JsonText(text) => self.write_body(object, None, text, exceptions, by),
            AuditData::Raw { media_type, bytes } => self.write_body(object, Some(media_type), bytes, exceptions, by),
            AuditData::Streamed { media_type, bytes } => object.write_object("data", |data| {
                self.write_media_type(data, media_type, by);
                if let Some(bytes) = bytes {
                    data.write_json("http_raw_body_size", &bytes);
                }
            }),
        }
    }

    /// Renders the fields of a request, or one hash of them if they would take too much space.
    fn write_fields(&self, data: &mut Vec<u8>, fields: &Fields, exceptions: MaskExceptions<'_>) {
        let within = |sent| MaskExceptions { max_bytes: self.mask.max_bytes(sent), ..exceptions };
        // The limit on the output grows with the size of the body. The first attempt uses the limit for an empty body,
        // which is usually sufficient. Then the fields need not be serialized to determine their size.
        if self.mask.write_fields(data, fields, within(0)).is_ok() {
            return;
        }
        let mut sent = PartlySecret::default();
        // This cannot fail: parsed JSON can always be serialized, and the output is in memory.
        let _ = sent.write_secret(|sent| serde_json::to_writer(sent, fields));
        if self.mask.write_fields(data, fields, within(sent.len())).is_err() {
            self.write_body_hash(data, JSON_MEDIA_TYPE, sent.expose(), BodyOrigin::Server);
        }
    }

    /// Renders a body: JSON member by member with hashed strings, any other type as one hash of the whole body.
    fn write_body(
        &self,
        object: &mut JsonObjectWriter<'_>,
        media_type: Option<&str>,
        bytes: &[u8],
        exceptions: MaskExceptions<'_>,
        by: BodyOrigin,
    ) {
        let is_json = media_type.is_none_or(|media_type| media_type.contains("json"));
        let (is_short, max_bytes) = match by {
            BodyOrigin::Server => (true, None),
            BodyOrigin::Caller => (bytes.len() <= MAX_HASHED_BODY_BYTES, self.mask.max_bytes(bytes.len())),
        };
        let data = object.write_name("data");
        if is_json && is_short && self.mask.write_json(data, bytes, MaskExceptions { max_bytes, ..exceptions }).is_ok()
        {
            return;
        }
        self.write_body_hash(data, media_type.unwrap_or_default(), bytes, by);
    }

    fn write_body_hash(&self, data: &mut Vec<u8>, media_type: &str, bytes: &[u8], by: BodyOrigin) {
        let mut data = JsonObjectWriter::begin(data);
        self.write_media_type(&mut data, media_type, by);
        self.mask.write_bytes(data.write_name("http_raw_body"), bytes);
        data.write_json("http_raw_body_size", &bytes.len());
        data.end();
    }

    fn write_media_type(&self, data: &mut JsonObjectWriter<'_>, media_type: &str, by: BodyOrigin) {
        let out = data.write_name("http_content_type");
        match by {
            BodyOrigin::Caller => self.mask.write_text(out, media_type),
            BodyOrigin::Server => write_json_text(out, media_type),
        }
    }
}

/// The sender of a body. If it is a caller, the media type may be any text and is hashed, and bodies above
/// [`MAX_HASHED_BODY_BYTES`] are recorded as one hash.
#[derive(Clone, Copy)]
enum BodyOrigin {
    Caller,
    Server,
}

impl Mask {
    fn write_secret(&self, out: &mut Vec<u8>, secret: &Secret) {
        match secret.expose_text() {
            Some(text) => self.write_text(out, text),
            None => self.write_bytes(out, secret.expose()),
        }
    }
}

fn render_value(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(80);
    write(&mut out);
    out
}

/// A JSON object under construction.
struct JsonObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    empty: bool,
}

impl<'o> JsonObjectWriter<'o> {
    fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    /// Writes the name of a member, and returns the buffer for its value. Names in entries need no escapes.
    fn write_name(&mut self, name: &'static str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    fn write_json<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(self.write_name(name), value);
    }

    /// Writes a member whose value is already rendered as JSON; writes nothing for `None`.
    fn write_rendered(&mut self, name: &'static str, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.write_name(name).extend_from_slice(value);
        }
    }

    fn write_rendered_members(&mut self, written: &[u8]) {
        if written.is_empty() {
            return;
        }
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out.extend_from_slice(written);
    }

    fn write_object(&mut self, name: &'static str, members: impl FnOnce(&mut JsonObjectWriter<'_>)) {
        let mut object = JsonObjectWriter::begin(self.write_name(name));
        members(&mut object);
        object.end();
    }

    fn write_mount(&mut self, request: &AuditRequest<'_>) {
        if let Some(mount) = request.mount {
            self.write_json("mount_point", &mount.path);
            self.write_json("mount_type", mount.kind.name());
            self.write_json("mount_accessor", &mount.accessor);
        }
    }
}

/// The error message of a refusal that has no text of its own.
fn describe_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Malformed => "malformed request",
        Kind::Invalid => "invalid request",
        Kind::Unauthenticated | Kind::Forbidden => "permission denied",
        Kind::NotFound => "not found",
        Kind::Conflict => "conflict",
        Kind::Precondition => "precondition failed",
        Kind::TooLarge => "request body too large",
        Kind::HeadersTooLarge => "request headers too large",
        Kind::BadGateway => "a backend rejected the server's credential",
        Kind::UnsupportedMedia => "unsupported media type",
        Kind::UnsupportedMethod => "unsupported method",
        Kind::Busy => "busy",
        Kind::Quota => "quota exceeded",
        Kind::Unavailable => "unavailable",
        Kind::Internal => "internal error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derived_values::DerivedValues;

    #[test]
    fn cached_caller_is_written_like_a_new_one_by_each_device() {
        let form =
            |key: u8, unmasked_accessors| EntryFormat::new(Mask::new(&[key; 32], false, unmasked_accessors), false);
        let forms = [form(1, false), form(2, false), form(2, true)];
        let policies = ["web".to_owned()];
        let derived = DerivedValues::default();
        let render = |form: &EntryFormat, derived| {
            let caller =
                AuditCaller { accessor: "handle", policies: &policies, derived, ..AuditCaller::named("token") };
            let path = "pki/issue/web";
            let token = Some("s.secret");
            let caller = Some(caller);
            form.render_request(&AuditRequest {
                id: "1",
                operation: "update",
                path,
                token,
                caller,
                ..AuditRequest::default()
            })
        };
        let new = forms.each_ref().map(|form| render(form, None));
        for _ in 0..2 {
            assert_eq!(forms.each_ref().map(|form| render(form, Some(&derived))), new);
        }
        assert!(new[0] != new[1] && new[1] != new[2]);
        let line: serde_json::Value = serde_json::from_slice(&[b"{", &new[0][..], b"}"].concat()).unwrap();
        let [token, accessor] = ["s.secret", "handle"].map(|text| forms[0].hash(text));
        assert_eq!([&line["auth"]["client_token"], &line["request"]["client_token"]], [&token; 2]);
        assert_eq!([&line["auth"]["accessor"], &line["request"]["client_token_accessor"]], [&accessor; 2]);
    }
    fn line(form: &EntryFormat, path: &str, data: AuditData<'_>) -> serde_json::Value {
        let request = AuditRequest { id: "1", operation: "update", path, data, ..AuditRequest::default() };
        serde_json::from_slice(&[b"{", &form.render_request(&request)[..], b"}"].concat()).unwrap()
    }

    #[test]
    fn oversized_hashed_body_is_recorded_as_one_hash_and_size() {
        let form = EntryFormat::new(Mask::new(&[1; 32], false, false), false);
        for (body, is_short) in [
            (format!("{{\"pin\":[{}1],\"role_id\":\"x\"}}", "1,".repeat(8000)), false),
            (format!("{{\"names\":[{}\"\"]}}", "\"\",".repeat(990)), false),
            (format!("{{\"pin\":[{}1],\"role_id\":\"x\"}}", "1,".repeat(30)), true),
            (format!("{{\"names\":[{}\"\"]}}", "\"a text of some letters\",".repeat(900)), true),
        ] {
            let fields = Fields::parse(body.as_bytes()).unwrap();
            let as_text = AuditData::Raw { media_type: JSON_MEDIA_TYPE, bytes: body.as_bytes() };
            for data in [AuditData::Fields(&fields), as_text] {
                if body.len() > MAX_HASHED_BODY_BYTES && matches!(data, AuditData::Raw { .. }) {
                    continue;
                }
                let line = line(&form, "auth/approle/login", data);
                let written = &line["request"]["data"];
                assert_eq!(written["http_raw_body"].is_null(), is_short, "{written}");
                assert!(line.to_string().len() < 8 * 1024 + 4 * body.len());
                if !is_short {
                    assert_eq!(written["http_raw_body"], form.hash(&body));
                    assert_eq!(written["http_raw_body_size"], body.len());
                }
            }
        }
    }

    #[test]
    fn tokens_and_accessors_in_a_path_are_hashed() {
        let token = format!("s.{}", "a1B2".repeat(11));
        let batch = format!("b.{}", "a-_2".repeat(20));
        let accessor = "a1B2c".repeat(5);
        let path_of = |form: &EntryFormat, path: &str| line(form, path, AuditData::None)["request"]["path"].clone();
        let form = EntryFormat::new(Mask::new(&[1; 32], false, false), false);
        for (path, secret) in [
            (format!("auth/token/revoke/{token}"), &token),
            (format!("{batch}/\u{e9}\"x"), &batch),
            (format!("auth/token/lookup-accessor/{accessor}"), &accessor),
        ] {
            assert_eq!(path_of(&form, &path), path.replace(secret.as_str(), &form.hash(secret)));
        }
        let clear = EntryFormat::new(Mask::new(&[1; 32], false, true), false);
        let path = format!("auth/token/revoke-accessor/{accessor}");
        assert_eq!(path_of(&clear, &path), path);
        for path in ["pki/issue/web", "", "a//b", "s.short/b.short"] {
            assert_eq!(path_of(&form, path), path);
        }
    }

    #[test]
    fn device_test_line_has_the_shape_of_a_request() {
        let form = EntryFormat::new(Mask::new(&[1; 32], false, false), false);
        let now = Time::UNIX_EPOCH;
        let line: serde_json::Value = serde_json::from_slice(&form.render_test_line(now, now)).unwrap();
        assert_eq!((&line["type"], &line["request"]["path"]), (&"request".into(), &"sys/audit/test".into()));
        assert_eq!(line["error"], "audit: no entry accepted since 1970-01-01T00:00:00Z");
    }
}
