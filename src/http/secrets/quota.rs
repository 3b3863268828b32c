//! Rate-limit quotas in the request pipeline.
//!
//! A request is counted before its caller is identified and its body is read. The exception is a login to which a quota
//! for its role may apply: it is counted after its body was read, because the body names the role.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, RETRY_AFTER};

use super::render::set_text;
use super::request::ParsedRequest;
use super::target::ResolvedRoute;
use crate::auth::quotas::{QuotaConfig, QuotaRequest, Quotas, RateDecision};
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::http::state::WorkerState;

static LIMIT_HEADER: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING_HEADER: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET_HEADER: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The quotas that may apply to a request, and the time at which the request is counted.
pub(super) struct QuotaGate {
    quotas: Arc<Quotas>,
    address: Option<IpAddr>,
    /// `true` if the request is counted after its body was read.
    counts_after_body: bool,
}

impl QuotaGate {
    pub(super) fn new(quotas: Arc<Quotas>, target: &ResolvedRoute, address: Option<IpAddr>) -> Self {
        let depends_on_role = |mount| quotas.depends_on_role(mount);
        let counts_after_body = target.is_login() && target.mount.as_deref().is_some_and(depends_on_role);
        Self { quotas, address, counts_after_body }
    }

    /// Counts the request, unless it must be counted after its body was read.
    pub(super) fn count_before_body(
        &self,
        state: &WorkerState,
        target: &ResolvedRoute,
        parsed: &ParsedRequest,
    ) -> Option<QuotaResult> {
        if self.counts_after_body { None } else { self.count(target, parsed, target.role(parsed), state.clock.now()) }
    }

    /// Counts a request whose body could not be read, if it should have been counted after its body was read.
    pub(super) fn count_without_body(
        &self,
        state: &WorkerState,
        target: &ResolvedRoute,
        parsed: &ParsedRequest,
    ) -> Option<QuotaResult> {
        if self.counts_after_body { self.count(target, parsed, "", state.clock.now()) } else { None }
    }

    /// Counts the request, if it must be counted after its body was read.
    pub(super) fn count_after_body(
        &self,
        state: &WorkerState,
        target: &ResolvedRoute,
        parsed: &ParsedRequest,
        sent: &Fields,
    ) -> Option<QuotaResult> {
        let mount = target.mount.as_deref().filter(|_| self.counts_after_body)?;
        self.count(target, parsed, &state.auth.login_role(mount, sent), state.clock.now())
    }

    fn count(&self, target: &ResolvedRoute, parsed: &ParsedRequest, role: &str, now: Time) -> Option<QuotaResult> {
        let below_mount = parsed.path.get(target.below_mount.clone()).unwrap_or_default();
        let mount = target.mount.as_deref().map(|mount| (mount, below_mount));
        let request = QuotaRequest { path: &parsed.path, mount, role, address: self.address };
        let decision = self.quotas.count_request(&request, now)?;
        let QuotaConfig {
            enable_rate_limit_audit_logging: is_rejection_audited,
            enable_rate_limit_response_headers: has_headers,
            ..
        } = *self.quotas.config();
        Some(QuotaResult { decision, is_rejection_audited, has_headers })
    }
}

/// The result of counting a request against its rate limit quota.
pub(super) struct QuotaResult {
    decision: RateDecision,
    /// `true` if the quota settings require that a rejection is audited.
    is_rejection_audited: bool,
    /// `true` if the quota settings require rate limit headers in the response.
    has_headers: bool,
}

impl QuotaResult {
    /// `true` if the quota rejects the request and the rejection is not audited.
    pub(super) fn is_rejected_unaudited(&self) -> bool {
        !self.decision.granted && !self.is_rejection_audited
    }

    /// Returns an error if the request exceeds the quota.
    ///
    /// # Errors
    /// `Quota` when the request exceeds the quota.
    pub(super) fn check(&self, path: &str) -> Result<()> {
        if self.decision.granted {
            return Ok(());
        }
        Err(Error::new(Kind::Quota, format!("request path {path:?}: rate limit quota exceeded")))
    }

    /// Adds the rate limit headers to the response.
    pub(super) fn write_headers(&self, response: &mut HttpResponse) {
        let RateDecision { granted, limit, remaining, reset, retry_after, .. } = self.decision;
        if !granted {
            set_text(response, RETRY_AFTER, &retry_after.to_string());
        }
        if self.has_headers {
            for (name, value) in [(&LIMIT_HEADER, limit), (&REMAINING_HEADER, remaining), (&RESET_HEADER, reset)] {
                set_text(response, name.clone(), &value.to_string());
            }
        }
    }
}
