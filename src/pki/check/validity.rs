//! Start and end of a certificate.
//!
//! Computes two times, in whole seconds, from role, request, the mount's lifetimes and the issuer. Overflow is checked:
//! validity outside 1970 to 9999 (the range of GeneralizedTime, RFC 5280 4.1.2.5) is rejected. Lifetimes count from
//! now, so backdating never changes the end.
//!
//! [`for_leaf`] handles everything that an issuer signs, including `sign-verbatim` and `sign-intermediate` with their
//! roles; [`for_root`] handles self-signed certificates.

use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::request::{ExcessiveTtl, RequestedValidity};
use crate::clock::{Time, format_duration, format_rfc3339};
use crate::error::{Error, Result, Warnings};
use crate::pki::mount::issuer::LeafNotAfterBehavior;
use crate::pki::mount::role::{DEFAULT_NOT_BEFORE_DURATION, NotAfterBound, NotBeforeBound, Role};
use crate::pki::values::original_text::Rfc3339Text;

/// Start and end of a certificate in UTC, whole seconds, both inclusive (RFC 5280 4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start of validity.
    pub not_before: Time,
    /// End of validity, later than the start.
    pub not_after: Time,
}

/// The lifetimes of a mount, computed from its own settings and the system-wide ones; none is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountLifetimes {
    /// Lifetime if neither request nor role sets one.
    pub mount_default: Duration,
    /// Maximum lifetime if the role sets none.
    pub mount_max: Duration,
    /// Lifetime of a CA if the request sets none. On a mount without lifetimes of its own, this lifetime exceeds
    /// `mount_max`, because the system-wide maximum is meant for leaf certificates.
    pub authority_default: Duration,
}

impl MountLifetimes {
    /// Returns the limits for a CA, whose default is `authority_default`. If the request sets no lifetime, warns if
    /// that default exceeds the mount's maximum, or is not longer than the default lifetime of the certificates below
    /// the CA.
    pub(crate) fn for_authority(self, requested: &RequestedValidity) -> (Self, Warnings) {
        let own = Self { mount_default: self.authority_default, ..self };
        let mut warnings = Warnings::default();
        if requested.ttl.is_none() && requested.not_after.is_none() {
            let default_source = own.default_source();
            let lifetime = format_lifetime(own.mount_default.as_secs());
            let applied = format!("ttl: not set, {default_source} applies ({lifetime})");
            if own.mount_default > own.mount_max {
                warnings.add(format!("{applied}; to change it, set ttl or max_lease_ttl (sys/mounts/…/tune)"));
            } else if own.mount_default <= self.mount_default {
                // A lifetime up to the maximum can be requested without a change of the mount's settings.
                let remedy = if own.mount_default == own.mount_max {
                    "set ttl, and raise max_lease_ttl for it (sys/mounts/…/tune)".to_owned()
                } else {
                    format!(
                        "set ttl (at most {}), or raise default_lease_ttl (sys/mounts/…/tune)",
                        format_lifetime(own.mount_max.as_secs())
                    )
                };
                warnings.add(format!(
                    "{applied}: certificates with the mount's default lifetime outlive this CA; {remedy}"
                ));
            }
        }
        (own, warnings)
    }

    /// Returns the setting that determines the default lifetime, for messages. If the default equals the maximum,
    /// returns the setting of the maximum, because a longer default needs a higher maximum too.
    fn default_source(&self) -> &'static str {
        match self.mount_default.cmp(&self.mount_max) {
            Ordering::Less => "the mount's default_lease_ttl",
            Ordering::Equal => "the mount's max_lease_ttl",
            Ordering::Greater => "the default for CAs",
        }
    }
}

/// Computes the validity of a certificate signed by an issuer. `issuer` is the issuer's own validity, epoch seconds.
/// Also returns warnings for the caller.
///
/// # Errors
/// `Invalid` naming field and rule.
pub fn for_leaf(
    role: &Role,
    requested: &RequestedValidity,
    limits: MountLifetimes,
    issuer: RangeInclusive<i64>,
    behaviour: LeafNotAfterBehavior,
    now: Time,
) -> Result<(Validity, Warnings)> {
    let (issuer_not_before, issuer_not_after) = issuer.into_inner();
    let mut leaf =
        LeafValidityBuilder { role, requested, limits, now: now.unix_timestamp(), warnings: Warnings::default() };
    if issuer_not_after < leaf.now {
        return Err(Error::invalid("issuer_ref: the CA certificate has expired; renew it or select another issuer"));
    }
    let end = leaf.resolve_not_after()?;
    if end.0 < leaf.now {
        return Err(Error::invalid("not_after: lies in the past"));
    }
    let (end, source) = end;
    let not_before = leaf.resolve_not_before()?;
    if not_before >= end {
        return Err(empty_validity_error());
    }
    let not_after = apply_issuer_end(end, issuer_not_after, behaviour, source, &mut leaf.warnings)?;
    if not_after < issuer_not_before {
        return Err(Error::invalid(
            "not_after: lies before the start of the CA certificate, so the certificate could never be verified",
        ));
    }
    if leaf.now < issuer_not_before {
        let begins = format_time(issuer_not_before);
        leaf.warnings.add(format!(
            "issuer_ref: the issuer is not valid before {begins}; certificates signed now will not verify until \
                 then"
        ));
    }
    Ok((check_validity_range(not_before, not_after)?, leaf.warnings))
}

/// Computes the validity of a self-signed certificate. A `ttl` above the mount's maximum is capped with a warning, but
/// `not_after` is not. The default is [`MountLifetimes::authority_default`].
///
/// # Errors
/// `Invalid` naming field and rule.
pub fn for_root(
    requested: &RequestedValidity,
    not_before_duration: Duration,
    limits: MountLifetimes,
    now: Time,
) -> Result<(Validity, Warnings)> {
    let now = now.unix_timestamp();
    let (limits, mut warnings) = limits.for_authority(requested);
    let end = match requested.not_after {
        Some(_) if requested.ttl.is_some() => return Err(ttl_and_not_after_error()),
        Some(end) => end.unix_timestamp(),
        None => {
            let max = limits.mount_max;
            if let Some(wanted) = requested.ttl.filter(|wanted| *wanted > max) {
                let [wanted, max] = [wanted, max].map(|time| format_lifetime(time.as_secs()));
                warnings.add(format!("ttl: {wanted} is above the mount's max_lease_ttl: {max} was used"));
            }
            add_seconds(now, requested.ttl.map_or(limits.mount_default, |wanted| wanted.min(max)).as_secs())
        }
    };
    if end < now {
        return Err(Error::invalid("not_after: lies in the past"));
    }
    let start = match requested.not_before {
        Some(start) => start.unix_timestamp(),
        None => default_not_before(now, not_before_duration.as_secs())?,
    };
    Ok((check_validity_range(start, end)?, warnings))
}

struct LeafValidityBuilder<'a> {
    role: &'a Role,
    requested: &'a RequestedValidity,
    limits: MountLifetimes,
    now: i64,
    warnings: Warnings,
}

impl LeafValidityBuilder<'_> {
    /// Returns the end (epoch seconds) according to role and request, and the setting that it comes from.
    fn resolve_not_after(&mut self) -> Result<(i64, &'static str)> {
        let role = self.role;
        let bound = &self.role.not_after_bound;
        let requested = self.requested.not_after.map(Time::unix_timestamp);
        if requested.is_some() && *bound == NotAfterBound::Forbid {
            return Err(Error::invalid("not_after: the role forbids it (not_after_bound)"));
        }
        let fixed = role.not_after.as_ref().map(Rfc3339Text::epoch_seconds);
        if self.requested.ttl.is_some() && (fixed.is_some() || requested.is_some()) {
            return Err(ttl_and_not_after_error());
        }
        let ResolvedLifetime { seconds: ttl, source, cap_warning } = self.resolve_ttl()?;
        let latest = add_seconds(self.now, ttl);
        let end = match (fixed, requested) {
            (Some(fixed), _) => {
                if requested.is_some() {
                    self.warnings.add("not_after ignored: the role sets it".to_owned());
                }
                (fixed, "the role's not_after")
            }
            (None, Some(requested)) => {
                self.check_requested_not_after(requested, latest)?;
                (requested, "the request's not_after")
            }
            (None, None) => {
                self.warnings.extend(cap_warning);
                (latest, source)
            }
        };
        if let NotAfterBound::Until(latest) = bound
            && end.0 > latest.epoch_seconds()
        {
            let latest = latest.as_str();
            return Err(Error::invalid(format!("not_after: later than the role allows (not_after_bound is {latest})")));
        }
        Ok(end)
    }

    /// Returns the lifetime that the request sets, or else that of the role or the mount. A lifetime above the limit is
    /// capped with a warning, unless the request prefers an error.
    fn resolve_ttl(&self) -> Result<ResolvedLifetime> {
        let (limit, limit_source) = match self.role.max_ttl {
            0 => (self.limits.mount_max.as_secs(), "the mount's max_lease_ttl"),
            seconds => (seconds, "the role's max_ttl"),
        };
        if let Some(ttl) = self.requested.ttl.map(|ttl| ttl.as_secs()) {
            if ttl <= limit {
                return Ok(ResolvedLifetime { seconds: ttl, source: "the request's ttl", cap_warning: None });
            }
            let above = format!("ttl: {} is above {limit_source}, {}", format_lifetime(ttl), format_lifetime(limit));
            return match self.requested.excessive_ttl {
                ExcessiveTtl::Refused => Err(Error::invalid(above)),
                ExcessiveTtl::Capped => Ok(ResolvedLifetime {
                    seconds: limit,
                    source: limit_source,
                    cap_warning: Some(format!("{above}: {} was used", format_lifetime(limit))),
                }),
            };
        }
        let default = self.limits.mount_default.as_secs();
        let role = self.role;
        let (ttl, source) = match role.ttl {
            0 => (default, self.limits.default_source()),
            seconds => (seconds, "the role's ttl"),
        };
        // The default for CAs may exceed the mount's maximum.
        if ttl <= limit || (role.ttl, role.max_ttl) == (0, 0) {
            return Ok(ResolvedLifetime { seconds: ttl, source, cap_warning: None });
        }
        let cap_warning = format!(
            "ttl: {source}, {}, is above {limit_source}: {} was used",
            format_lifetime(ttl),
            format_lifetime(limit)
        );
        Ok(ResolvedLifetime { seconds: limit, source: limit_source, cap_warning: Some(cap_warning) })
    }

    /// Checks a requested notAfter against the role. Without the check of `max_ttl`, clients could bypass that limit by
    /// sending a date instead of a lifetime.
    fn check_requested_not_after(&self, requested: i64, latest: i64) -> Result<()> {
        if self.role.max_ttl > 0 && requested > add_seconds(self.now, self.role.max_ttl) {
            let max = format_lifetime(self.role.max_ttl);
            return Err(Error::invalid(format!("not_after: lies beyond the role's max_ttl, {max} from now")));
        }
        if self.role.not_after_bound == NotAfterBound::TtlLimited && requested > latest {
            return Err(Error::invalid("not_after: lies beyond the role's ttl (not_after_bound is ttl-limited)"));
        }
        Ok(())
    }

    /// Returns the start in epoch seconds. The role limits how far requests may backdate, but not how far ahead they
    /// may start.
    fn resolve_not_before(&mut self) -> Result<i64> {
        let role = self.role;
        let earliest = subtract_seconds(self.now, effective_backdating(role.not_before_duration));
        let requested = self.requested.not_before.map(Time::unix_timestamp);
        if requested.is_some() && role.not_before_bound == NotBeforeBound::Forbid {
            return Err(Error::invalid("not_before: the role forbids it (not_before_bound)"));
        }
        if let Some(fixed) = &role.not_before {
            if requested.is_some() {
                self.warnings.add("not_before ignored: the role sets it".to_owned());
            }
            return Ok(fixed.epoch_seconds());
        }
        match requested {
            Some(start) if role.not_before_bound == NotBeforeBound::Duration && start < earliest => {
                Err(Error::invalid(
                    "not_before: further back than the role's not_before_duration (not_before_bound is duration)",
                ))
            }
            Some(start) => Ok(start),
            None => default_not_before(self.now, role.not_before_duration),
        }
    }
}

/// A lifetime and its origin.
struct ResolvedLifetime {
    seconds: u64,
    /// Setting or request field that the lifetime comes from, for messages.
    source: &'static str,
    /// Warning that a limit shortened the lifetime.
    cap_warning: Option<String>,
}

/// Applies the issuer's `leaf_not_after_behavior` if a certificate would expire after its issuer. `end` and
/// `issuer_end` are epoch seconds; `source` names the setting or field that `end` comes from.
///
/// # Errors
/// `Invalid` when the setting rejects such a certificate.
pub(crate) fn apply_issuer_end(
    end: i64,
    issuer_end: i64,
    behaviour: LeafNotAfterBehavior,
    source: &str,
    warnings: &mut Warnings,
) -> Result<i64> {
    if end <= issuer_end {
        return Ok(end);
    }
    let requested = format_time(end);
    let issuer = format_time(issuer_end);
    let beyond = format!(
        "not_after: notAfter {requested} (by {source}) is beyond the expiration of the CA certificate, {issuer}"
    );
    match behaviour {
        LeafNotAfterBehavior::Err | LeafNotAfterBehavior::AlwaysEnforceErr => Err(Error::invalid(format!(
            "{beyond}: request a shorter ttl, renew the CA, or set its leaf_not_after_behavior to truncate"
        ))),
        LeafNotAfterBehavior::Truncate => {
            warnings.add(format!("{beyond}: notAfter was truncated to the latter"));
            Ok(issuer_end)
        }
        LeafNotAfterBehavior::Permit => {
            warnings.add(beyond);
            Ok(end)
        }
    }
}

/// Returns the backdating in seconds; 0 selects the default.
fn effective_backdating(seconds: u64) -> u64 {
    if seconds == 0 { DEFAULT_NOT_BEFORE_DURATION } else { seconds }
}

/// Returns the start of validity for a request without `not_before`.
fn default_not_before(now: i64, seconds: u64) -> Result<i64> {
    let start = subtract_seconds(now, effective_backdating(seconds));
    if start < 0 { Err(Error::invalid("not_before_duration: reaches back before 1970")) } else { Ok(start) }
}

/// Adds seconds to a time and saturates; [`check_validity_range`] rejects values out of range.
fn add_seconds(now: i64, seconds: u64) -> i64 {
    now.saturating_add_unsigned(seconds)
}

fn subtract_seconds(now: i64, seconds: u64) -> i64 {
    now.saturating_sub_unsigned(seconds)
}

/// Checks that some request under a role can have valid dates: with the shortest, the longest or no lifetime, under a
/// mount and issuer without limits.
///
/// # Errors
/// `Invalid` naming the rule that every certificate of the role would violate.
pub(crate) fn check_role_dates(role: &Role, now: Time) -> Result<()> {
    let forever = Duration::from_secs(u64::from(u32::MAX));
    let limits = MountLifetimes { mount_default: forever, mount_max: forever, authority_default: forever };
    let longest = if role.max_ttl > 0 { Duration::from_secs(role.max_ttl) } else { forever };
    let tried = |ttl| {
        let requested = RequestedValidity { ttl, ..RequestedValidity::default() };
        for_leaf(role, &requested, limits, 0..=i64::MAX, LeafNotAfterBehavior::Err, now).map(drop)
    };
    tried(None).or_else(|broken| {
        let lifetimes = [Duration::from_secs(1), longest];
        if lifetimes.into_iter().any(|ttl| tried(Some(ttl)).is_ok()) { Ok(()) } else { Err(broken) }
    })
}

fn empty_validity_error() -> Error {
    Error::invalid("not_before: must be before not_after")
}

/// Error for a request with both `ttl` and `not_after`.
pub(crate) fn ttl_and_not_after_error() -> Error {
    Error::invalid("ttl: give either ttl or not_after")
}

fn format_lifetime(seconds: u64) -> String {
    format_duration(Duration::from_secs(seconds))
}

fn format_time(seconds: i64) -> String {
    Time::from_unix_timestamp(seconds).map_or_else(|_| "beyond the year 9999".to_owned(), format_rfc3339)
}

/// Checks that `end` is after `start`, and that certificates can encode both.
pub(crate) fn check_validity_range(start: i64, end: i64) -> Result<Validity> {
    if start < 0 {
        return Err(Error::invalid("not_before: lies before 1970"));
    }
    if start >= end {
        return Err(empty_validity_error());
    }
    let time = |field: &str, seconds| {
        Time::from_unix_timestamp(seconds).map_err(|_| Error::invalid(format!("{field}: lies beyond the year 9999")))
    };
    Ok(Validity { not_before: time("not_before", start)?, not_after: time("not_after", end)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{parse_duration, parse_rfc3339};
    use crate::pki::mount::role::parse_role;
    use crate::pki::values::Keyword as _;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use time::macros::datetime;

    const NOW: Time = datetime!(2030-06-01 12:00:00.7 UTC);
    const HOUR: i64 = 3600;
    const END_OF_YEAR_9999: i64 = 253_402_300_799;
    const MONTH: Duration = Duration::from_secs(768 * 3600);
    const LIMITS: MountLifetimes = MountLifetimes { mount_default: MONTH, mount_max: MONTH, authority_default: MONTH };

    fn now() -> i64 {
        NOW.unix_timestamp()
    }

    /// Formats `seconds` from now as RFC 3339.
    fn from_now(seconds: i64) -> String {
        format_rfc3339(Time::from_unix_timestamp(now() + seconds).unwrap())
    }

    fn parse(request: &Value) -> Result<RequestedValidity> {
        let time = |name: &str| request[name].as_str().map(|text| parse_rfc3339(name, text)).transpose();
        let ttl = request["ttl"].as_str().map(|text| parse_duration(text).unwrap());
        Ok(RequestedValidity {
            ttl,
            not_after: time("not_after")?,
            not_before: time("not_before")?,
            ..RequestedValidity::default()
        })
    }

    /// Computes the validity of a leaf. Returns its start and end in seconds from now, and the warnings.
    fn leaf_under(
        role: Value,
        request: Value,
        issuer: i64,
        behaviour: LeafNotAfterBehavior,
    ) -> Result<(i64, i64, Warnings)> {
        let role = parse_role(&role);
        let (validity, warnings) = for_leaf(&role, &parse(&request)?, LIMITS, 0..=issuer, behaviour, NOW)?;
        for time in [validity.not_before, validity.not_after] {
            assert_eq!(time.nanosecond(), 0);
        }
        Ok((validity.not_before.unix_timestamp() - now(), validity.not_after.unix_timestamp() - now(), warnings))
    }

    fn leaf_validity(role: Value, request: Value) -> Result<(i64, i64)> {
        leaf_under(role, request, END_OF_YEAR_9999, LeafNotAfterBehavior::Err).map(|(start, end, _)| (start, end))
    }

    fn assert_refused(case: &str, result: Result<impl std::fmt::Debug>, field: &str) {
        let error = result.expect_err(case);
        assert!(error.text().starts_with(&format!("{field}: ")), "{case}: {error}");
    }

    #[test]
    fn lifetimes_come_from_request_role_or_mount() {
        let h4_max8 = json!({"ttl": "4h", "max_ttl": "8h"});
        for (case, role, request, end) in [
            ("T1: neither names one: the mount's 768h", json!({}), json!({}), 768 * HOUR),
            ("T2: the request's within max_ttl", h4_max8.clone(), json!({"ttl": "5h"}), 5 * HOUR),
            ("T4: the role's", h4_max8, json!({}), 4 * HOUR),
            (
                "a role max_ttl above the mount's wins over it",
                json!({"max_ttl": "2000h"}),
                json!({"ttl": "1900h"}),
                1900 * HOUR,
            ),
        ] {
            assert_eq!(leaf_validity(role, request).unwrap(), (-30, end), "{case}");
        }
        assert_refused(
            "T3: a requested ttl above max_ttl",
            leaf_validity(json!({"ttl": "4h", "max_ttl": "8h"}), json!({"ttl": "12h"})),
            "ttl",
        );
        assert_refused(
            "a requested ttl above the mount's maximum",
            leaf_validity(json!({}), json!({"ttl": "769h"})),
            "ttl",
        );
    }

    #[test]
    fn a_default_above_the_limit_is_capped_with_a_warning() {
        let (_, end, warnings) =
            leaf_under(json!({"max_ttl": "8h"}), json!({}), END_OF_YEAR_9999, LeafNotAfterBehavior::Err).unwrap();
        assert_eq!(end, 8 * HOUR);
        assert!(warnings[0].contains("768h"), "{warnings:?}");
        let (_, end, warnings) =
            leaf_under(json!({"ttl": "1000h"}), json!({}), END_OF_YEAR_9999, LeafNotAfterBehavior::Err).unwrap();
        assert_eq!((end, warnings.len()), (768 * HOUR, 1));
    }

    #[test]
    fn not_after_is_an_alternative_to_ttl() {
        let last = "9999-12-31T23:59:59Z";
        assert_eq!(
            leaf_validity(json!({}), json!({"not_after": last})).unwrap().1,
            END_OF_YEAR_9999 - now(),
            "T5: exact value"
        );
        assert_refused(
            "T5: beyond the role's max_ttl",
            leaf_validity(json!({"max_ttl": "8h"}), json!({"not_after": last})),
            "not_after",
        );
        assert_refused(
            "T6: no zone",
            leaf_validity(json!({}), json!({"not_after": "9999-12-31T23:59:59"})),
            "not_after",
        );
        assert_refused("T7: both", leaf_validity(json!({}), json!({"not_after": from_now(HOUR), "ttl": "1h"})), "ttl");
        assert_refused(
            "a role not_after and a ttl",
            leaf_validity(json!({"not_after": last}), json!({"ttl": "1h"})),
            "ttl",
        );
        let (_, end) =
            leaf_validity(json!({"not_after": from_now(5 * HOUR)}), json!({"not_after": from_now(HOUR)})).unwrap();
        assert_eq!(end, 5 * HOUR, "T14: the role's wins");
        assert_refused(
            "T18: one hour ago",
            leaf_validity(json!({}), json!({"not_after": from_now(-HOUR)})),
            "not_after",
        );
        let backdated = leaf_validity(json!({"not_before_duration": "2h"}), json!({"not_after": from_now(-HOUR)}));
        assert_refused("T18: one hour ago, whatever the start", backdated, "not_after");
    }

    #[test]
    fn validity_bounds_limit_requested_dates() {
        let forbid = json!({"not_after_bound": "forbid"});
        assert_refused("T8", leaf_validity(forbid, json!({"not_after": from_now(HOUR)})), "not_after");
        let bound = json!({"not_after_bound": from_now(2 * HOUR), "ttl": "1h"});
        assert_refused(
            "T9: later",
            leaf_validity(bound.clone(), json!({"not_after": from_now(3 * HOUR)})),
            "not_after",
        );
        assert_eq!(leaf_validity(bound.clone(), json!({"not_after": from_now(HOUR)})).unwrap().1, HOUR, "T9: earlier");
        assert_refused("T9: by ttl", leaf_validity(bound, json!({"ttl": "3h"})), "not_after");
        let limited = json!({"not_after_bound": "ttl-limited", "ttl": "1h"});
        assert_refused("T10", leaf_validity(limited.clone(), json!({"not_after": from_now(2 * HOUR)})), "not_after");
        assert_eq!(leaf_validity(limited, json!({"not_after": from_now(HOUR)})).unwrap().1, HOUR, "T10: at the ttl");
        assert_refused(
            "T11",
            leaf_validity(json!({"not_before_bound": "forbid"}), json!({"not_before": from_now(-60)})),
            "not_before",
        );
        let duration = json!({"not_before_bound": "duration", "not_before_duration": "1h"});
        assert_refused(
            "T12: three hours back",
            leaf_validity(duration.clone(), json!({"not_before": from_now(-3 * HOUR)})),
            "not_before",
        );
        assert_eq!(
            leaf_validity(duration.clone(), json!({"not_before": from_now(-1800)})).unwrap().0,
            -1800,
            "T12: half an hour"
        );
        assert_eq!(leaf_validity(duration, json!({"not_before": from_now(1800)})).unwrap().0, 1800, "a future value");
    }

    #[test]
    fn not_before_is_from_role_then_request_then_backdating() {
        assert_eq!(
            leaf_validity(json!({"not_before_duration": "2h", "ttl": "1h"}), json!({})).unwrap(),
            (-2 * HOUR, HOUR),
            "T13"
        );
        assert_eq!(leaf_validity(json!({"not_before_duration": 0}), json!({})).unwrap().0, -30, "0 is 30 seconds");
        assert_eq!(leaf_validity(json!({}), json!({"not_before": from_now(-HOUR)})).unwrap().0, -HOUR);
        let fixed = leaf_validity(json!({"not_before": from_now(-2 * HOUR)}), json!({"not_before": from_now(-HOUR)}));
        assert_eq!(fixed.unwrap().0, -2 * HOUR);
        let late = leaf_validity(json!({}), json!({"not_before": from_now(2 * HOUR), "not_after": from_now(HOUR)}));
        assert_refused("T22: not_before after not_after", late, "not_before");
        assert_refused(
            "equal",
            leaf_validity(json!({}), json!({"not_before": from_now(HOUR), "ttl": "1h"})),
            "not_before",
        );
        assert_refused(
            "before 1970",
            leaf_validity(json!({}), json!({"not_before": "1969-12-31T23:59:59Z"})),
            "not_before",
        );
    }

    #[test]
    fn issuer_not_yet_valid_warns_and_refuses_earlier_ends() {
        let under = |begins: i64| {
            let issuer = now() + begins..=END_OF_YEAR_9999;
            let request = RequestedValidity { ttl: Some(Duration::from_secs(3600)), ..Default::default() };
            for_leaf(&Role::default(), &request, LIMITS, issuer, LeafNotAfterBehavior::Permit, NOW)
                .map(|(_, warnings)| warnings)
        };
        assert!(under(0).unwrap().is_empty());
        for begins in [1, 3600] {
            let wanted = format!(
                "issuer_ref: the issuer is not valid before {}; certificates signed now will not verify until then",
                from_now(begins)
            );
            assert_eq!(*under(begins).unwrap(), [wanted]);
        }
        assert_refused("ends before", under(3601), "not_after");
    }

    #[test]
    fn certificate_outliving_its_issuer_follows_the_setting() {
        use LeafNotAfterBehavior::{AlwaysEnforceErr, Err, Permit, Truncate};
        let soon = now() + 10;
        let under = |request: Value, behaviour| leaf_under(json!({}), request, soon, behaviour);
        assert_eq!(under(json!({"ttl": "1s"}), Err).unwrap().1, 1, "T15: ends before");
        assert_refused("T15: the default", under(json!({}), Err), "not_after");
        assert_refused("always_enforce_err", under(json!({}), AlwaysEnforceErr), "not_after");
        assert_eq!(under(json!({}), Permit).unwrap().1, 768 * HOUR, "T16");
        let (_, end, warnings) = under(json!({}), Truncate).unwrap();
        assert_eq!((end, warnings.len()), (10, 1), "T17");
        for behaviour in [Err, Truncate, Permit, AlwaysEnforceErr] {
            assert_refused("T18", under(json!({"not_after": from_now(-HOUR)}), behaviour), "not_after");
            let expired = leaf_under(json!({}), json!({"ttl": "1s"}), now() - 1, behaviour);
            assert_refused("T19, T25: an expired issuer never issues", expired, "issuer_ref");
        }
        assert_eq!(leaf_under(json!({}), json!({}), now(), Truncate).unwrap().1, 0, "the issuer's last second");
    }

    #[test]
    fn truncating_endpoints_override_leaf_not_after_behavior() {
        use LeafNotAfterBehavior::{AlwaysEnforceErr, Err, Permit, Truncate};
        for (own, enforced, holds) in [
            (Err, false, Truncate),
            (Permit, false, Truncate),
            (Err, true, Err),
            (Permit, true, Permit),
            (AlwaysEnforceErr, false, AlwaysEnforceErr),
            (AlwaysEnforceErr, true, AlwaysEnforceErr),
        ] {
            assert_eq!(own.on_truncating_endpoint(enforced), holds);
            assert_eq!(LeafNotAfterBehavior::parse(own.as_str()).unwrap(), own);
            assert_eq!(serde_json::to_value(own).unwrap(), json!(own.as_str()));
        }
        assert!(LeafNotAfterBehavior::parse("ERR").is_err());
    }

    #[test]
    fn ca_without_a_ttl_gets_the_default_for_cas_with_a_warning() {
        let decade = Duration::from_secs(87_600 * 3600);
        let limits = MountLifetimes { mount_max: decade, authority_default: decade, ..LIMITS };
        let none = RequestedValidity::default();
        let (validity, warnings) = for_root(&none, Duration::ZERO, limits, NOW).unwrap();
        assert_eq!(validity.not_after.unix_timestamp() - now(), 87_600 * HOUR);
        assert!(warnings.is_empty());
        let (own, warnings) = limits.for_authority(&none);
        assert_eq!((own.mount_default, warnings.is_empty()), (decade, true));
        // The mount's own default applies to CAs too, and the warning names it.
        let short = MountLifetimes { mount_default: Duration::from_secs(3600), mount_max: decade, ..LIMITS };
        let short = MountLifetimes { authority_default: short.mount_default, ..short };
        let (validity, warnings) = for_root(&none, Duration::ZERO, short, NOW).unwrap();
        assert_eq!(validity.not_after.unix_timestamp() - now(), HOUR);
        assert!(warnings[0].contains("the mount's default_lease_ttl applies (1h)"), "{warnings:?}");
        assert!(warnings[0].contains("set ttl (at most 87600h), or raise default_lease_ttl"), "{warnings:?}");
        // On a mount without its own lifetimes, a CA may exceed the system-wide maximum, which is meant for leaf
        // certificates.
        let untuned = MountLifetimes { authority_default: decade, ..LIMITS };
        let (validity, warnings) = for_root(&none, Duration::ZERO, untuned, NOW).unwrap();
        assert_eq!(validity.not_after.unix_timestamp() - now(), 87_600 * HOUR);
        assert!(warnings[0].contains("not set, the default for CAs applies (87600h)"), "{warnings:?}");
        let (own, _) = untuned.for_authority(&none);
        for (issuer, behaviour) in
            [(END_OF_YEAR_9999, LeafNotAfterBehavior::Err), (now() + 90_000 * HOUR, LeafNotAfterBehavior::Truncate)]
        {
            let (validity, _) = for_leaf(&Role::default(), &none, own, 0..=issuer, behaviour, NOW).unwrap();
            assert_eq!(validity.not_after.unix_timestamp() - now(), 87_600 * HOUR);
        }
        let requested = RequestedValidity { ttl: Some(decade), ..RequestedValidity::default() };
        let (validity, warnings) = for_root(&requested, Duration::ZERO, untuned, NOW).unwrap();
        assert_eq!(validity.not_after.unix_timestamp() - now(), 768 * HOUR);
        assert!(warnings[0].contains("87600h is above the mount's max_lease_ttl: 768h was used"), "{warnings:?}");
        let (_, warnings) = for_root(&none, Duration::ZERO, LIMITS, NOW).unwrap();
        assert!(warnings[0].contains("the mount's max_lease_ttl applies (768h)"), "{warnings:?}");
        assert!(warnings[0].ends_with("set ttl, and raise max_lease_ttl for it (sys/mounts/…/tune)"), "{warnings:?}");
        let given = RequestedValidity { ttl: Some(Duration::from_secs(60)), ..RequestedValidity::default() };
        assert!(short.for_authority(&given).1.is_empty(), "a requested ttl causes no warning");
    }

    #[test]
    fn setting_that_shortens_a_lifetime_is_named() {
        let text = |role: Value, request: Value, behaviour| match leaf_under(role, request, now() + 10, behaviour) {
            Ok((_, _, warnings)) => warnings.join(" "),
            Err(error) => error.text().to_owned(),
        };
        for (role, request, setting) in [
            (json!({"ttl": "1h"}), json!({}), "(by the role's ttl)"),
            (json!({}), json!({}), "(by the mount's max_lease_ttl)"),
            (json!({}), json!({"ttl": "1h"}), "(by the request's ttl)"),
            (json!({}), json!({"not_after": from_now(HOUR)}), "(by the request's not_after)"),
            (json!({"not_after": from_now(HOUR)}), json!({}), "(by the role's not_after)"),
            (json!({"ttl": "4h", "max_ttl": "8h"}), json!({}), "(by the role's ttl)"),
            (json!({"max_ttl": "8h"}), json!({}), "(by the role's max_ttl)"),
        ] {
            for behaviour in [LeafNotAfterBehavior::Err, LeafNotAfterBehavior::Truncate] {
                let text = text(role.clone(), request.clone(), behaviour);
                assert!(text.contains(setting), "{text}");
            }
        }
        let cap_warning =
            leaf_under(json!({"max_ttl": "8h"}), json!({}), END_OF_YEAR_9999, LeafNotAfterBehavior::Err).unwrap().2;
        assert!(
            cap_warning[0].starts_with("ttl: the mount's max_lease_ttl, 768h, is above the role's max_ttl: 8h"),
            "{cap_warning:?}"
        );
    }

    #[test]
    fn a_root_is_capped_at_the_mount_maximum_with_a_warning() {
        let backdate = Duration::from_secs(30);
        let root = |ttl: Option<u64>, not_after: Option<&str>, not_before: Option<&str>| {
            let time = |name: &str, text: Option<&str>| text.map(|text| parse_rfc3339(name, text)).transpose();
            let requested = RequestedValidity {
                ttl: ttl.map(Duration::from_secs),
                not_after: time("not_after", not_after)?,
                not_before: time("not_before", not_before)?,
                ..RequestedValidity::default()
            };
            for_root(&requested, backdate, LIMITS, NOW)
                .map(|(v, w)| (v.not_before.unix_timestamp() - now(), v.not_after.unix_timestamp() - now(), w.len()))
        };
        assert_eq!(root(None, None, None).unwrap(), (-30, 768 * HOUR, 1), "as long as its leaves, and said so");
        assert_eq!(root(Some(3600), None, None).unwrap(), (-30, HOUR, 0));
        assert_eq!(root(Some(87_600 * 3600), None, None).unwrap(), (-30, 768 * HOUR, 1));
        assert_eq!(root(None, Some("9999-12-31T23:59:59Z"), None).unwrap(), (-30, END_OF_YEAR_9999 - now(), 0));
        assert_eq!(root(None, None, Some(&from_now(-HOUR))).unwrap(), (-HOUR, 768 * HOUR, 1));
        assert_refused("both", root(Some(1), Some(&from_now(HOUR)), None), "ttl");
        assert_refused("past", root(None, Some(&from_now(-HOUR)), None), "not_after");
        assert_refused("order", root(None, Some(&from_now(HOUR)), Some(&from_now(HOUR))), "not_before");
        assert_refused("no zone", root(None, None, Some("2030-01-01T00:00:00")), "not_before");
    }

    #[test]
    fn validity_beyond_the_year_9999_is_refused() {
        let huge = json!({"max_ttl": 300_000_000_000u64, "ttl": 299_000_000_000u64});
        assert_refused("a huge ttl", leaf_under(huge, json!({}), i64::MAX, LeafNotAfterBehavior::Permit), "not_after");
        let zone = json!({"not_after": "9999-12-31T23:59:59-01:00"});
        assert_refused("a zone past the last second", leaf_validity(json!({}), zone), "not_after");
        let limits =
            MountLifetimes { mount_default: Duration::MAX, mount_max: Duration::MAX, authority_default: Duration::MAX };
        assert_refused(
            "a huge mount default",
            for_root(&RequestedValidity::default(), Duration::MAX, limits, NOW),
            "not_before_duration",
        );
        assert_refused(
            "a huge mount default",
            for_root(&RequestedValidity::default(), Duration::ZERO, limits, NOW),
            "not_after",
        );
    }

    proptest! {
        #[test]
        fn validity_start_and_end_are_exact_to_the_second(ttl in 1u64..2_764_800, back in 1u64..1_000_000, nanos in 0i64..1_000_000_000, offset in 0i64..1_000_000_000) {
            let now = Time::from_unix_timestamp(1_700_000_000 + offset).unwrap() + time::Duration::nanoseconds(nanos);
            let role = Role { not_before_duration: back, ..Role::default() };
            let request = RequestedValidity { ttl: Some(Duration::from_secs(ttl)), ..Default::default() };
            let (validity, warnings) = for_leaf(&role, &request, LIMITS, 0..=END_OF_YEAR_9999, LeafNotAfterBehavior::Err, now).unwrap();
            prop_assert_eq!(validity.not_after.unix_timestamp() - now.unix_timestamp(), ttl as i64);
            prop_assert_eq!(now.unix_timestamp() - validity.not_before.unix_timestamp(), back as i64);
            prop_assert_eq!(validity.not_after.nanosecond(), 0);
            prop_assert!(warnings.is_empty());
        }

        #[test]
        fn validity_of_any_input_does_not_panic_and_stays_in_bounds(
            role_ttl in any::<u64>(), max_ttl in any::<u64>(), back in any::<u64>(), ttl in proptest::option::of(any::<u64>()),
            mount in any::<(u64, u64)>(), issuer in any::<i64>(), not_after in "\\PC{0,12}|[0-9]{4}-12-31T23:59:59[+-][0-9]{2}:[0-9]{2}",
            which in 0u8..4,
        ) {
            let role = Role { ttl: role_ttl, max_ttl, not_before_duration: back, ..Role::default() };
            let role = NotAfterBound::parse(&not_after).map_or(role.clone(), |not_after_bound| Role { not_after_bound, ..role });
            let request = RequestedValidity {
                ttl: ttl.map(Duration::from_secs),
                not_after: (which == 0).then(|| parse_rfc3339("not_after", &not_after).ok()).flatten(),
                ..RequestedValidity::default()
            };
            let mount_default = Duration::from_secs(mount.0);
            let mount_max = Duration::from_secs(mount.1);
            let limits = MountLifetimes { mount_default, mount_max, authority_default: mount_max };
            let behaviour = [LeafNotAfterBehavior::Err, LeafNotAfterBehavior::Truncate, LeafNotAfterBehavior::Permit, LeafNotAfterBehavior::AlwaysEnforceErr][usize::from(which)];
            if let Ok((validity, _)) = for_leaf(&role, &request, limits, 0..=issuer, behaviour, NOW) {
                prop_assert!(validity.not_before < validity.not_after);
                prop_assert!(behaviour == LeafNotAfterBehavior::Permit || validity.not_after.unix_timestamp() <= issuer);
            }
        }
    }
}
