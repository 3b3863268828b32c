//! W3C Trace Context: the trace that a request belongs to.
//!
//! The server creates no spans. It propagates the trace, and writes the trace id to the access log, the audit and
//! exemplars. `tracestate` is vendor-specific text of the caller and is not forwarded to third parties.

/// Length of a version 00 `traceparent`, in bytes.
const TRACEPARENT_BYTES: usize = 55;
/// Flags that are propagated: sampled (Level 1) and random-trace-id (Level 2). Others are reserved and sent as 0.
const KNOWN_FLAGS: u8 = 0b11;
const SAMPLED_FLAG: u8 = 0b01;

/// A valid `traceparent` header (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// 32 lower-case hexadecimal digits.
    trace_id: [u8; 32],
    flags: u8,
}

impl TraceContext {
    /// Parses the `traceparent` of a request. `None` if it is invalid, because servers must ignore invalid headers.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(TRACEPARENT_BYTES)?;
        let [version, trace_id, parent_id, flags] = split_fields(known)?;
        // A later version of `traceparent` may append fields; the first four keep their form.
        let is_complete = if version == b"00" { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
        if version == b"ff" || !is_complete || is_zero(trace_id) || is_zero(parent_id) {
            return None;
        }
        let flags = u8::from_str_radix(std::str::from_utf8(flags).ok()?, 16).ok()?;
        Some(Self { trace_id: trace_id.try_into().ok()?, flags: flags & KNOWN_FLAGS })
    }

    /// The trace id, in hexadecimal.
    pub fn trace_id(&self) -> &str {
        std::str::from_utf8(&self.trace_id).unwrap_or_default()
    }

    /// `true` if the `sampled` flag is set, that is, if the caller may have recorded the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED_FLAG != 0
    }

    /// Renders the `traceparent` of an outbound request with this span id, which must not be all zeros.
    pub fn child_traceparent(&self, span: [u8; 8]) -> String {
        format!("00-{}-{:016x}-{:02x}", self.trace_id(), u64::from_be_bytes(span), self.flags)
    }
}

/// Splits a version 00 value into its four fields.
fn split_fields(text: &[u8]) -> Option<[&[u8]; 4]> {
    let hyphens = [2, 35, 52].map(|at| text[at]);
    let all = [&text[..2], &text[3..35], &text[36..52], &text[53..]];
    let is_hex = |field: &&[u8]| field.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    (hyphens == *b"---" && all.iter().all(is_hex)).then_some(all)
}

fn is_zero(id: &[u8]) -> bool {
    id.iter().all(|digit| *digit == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn read(text: &str) -> Option<TraceContext> {
        TraceContext::parse(text.as_bytes())
    }

    #[test]
    fn traceparent_valid_keeps_trace_and_known_flags() {
        for (flags, passed) in [("00", "00"), ("01", "01"), ("03", "03"), ("ff", "03"), ("08", "00")] {
            let trace = read(&format!("00-{TRACE}-00f067aa0ba902b7-{flags}")).unwrap();
            assert_eq!((trace.trace_id(), trace.is_sampled()), (TRACE, passed != "00"));
            let child = trace.child_traceparent([0, 0, 0, 0, 0, 0, 0, 7]);
            assert_eq!(child, format!("00-{TRACE}-0000000000000007-{passed}"));
            assert_eq!(read(&child), Some(trace));
        }
    }

    #[test]
    fn traceparent_of_a_later_version_is_read_by_its_first_fields() {
        for text in [format!("cc-{TRACE}-00f067aa0ba902b7-01"), format!("cc-{TRACE}-00f067aa0ba902b7-01-later")] {
            assert_eq!(read(&text).unwrap().trace_id(), TRACE, "{text}");
        }
        assert_eq!(read(&format!("cc-{TRACE}-00f067aa0ba902b7-01.later")), None);
    }

    #[test]
    fn traceparent_invalid_is_ignored() {
        let parent = "00f067aa0ba902b7";
        for text in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-{parent}-01"),
            format!("00-{TRACE}-{parent}-01-more"),
            format!("00-{TRACE}-{parent}-01 "),
            format!(" 00-{TRACE}-{parent}-01"),
            format!("00-{TRACE}-{parent}-1"),
            format!("00-{TRACE}-{parent}-0g"),
            format!("0x-{TRACE}-{parent}-01"),
            format!("00-{}-{parent}-01", TRACE.to_uppercase()),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}_{parent}-01"),
            format!("00-{}-{parent}-01", &TRACE[..31]),
            format!("00-{}é-{parent}-01", &TRACE[..30]),
        ] {
            assert_eq!(read(&text), None, "{text}");
        }
    }
}
