//! Rate-limit quotas in the request pipeline.
//!
//! A request is counted before its caller is identified and its body is read. Only if a quota applies to a role of a
//! login method, the request is counted when its body has been read, which names the role.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, RETRY_AFTER};

use super::render::set_text;
use super::request::Asked;
use super::target::Target;
use crate::auth::quotas::{QuotaConfig, Quotas, Request, Taken};
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use crate::http::state::State;

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The quotas for a request.
pub(super) struct Gate {
    quotas: Arc<Quotas>,
    address: Option<IpAddr>,
    /// `true` if the request is counted when its body has been read.
    waits: bool,
}

impl Gate {
    pub(super) fn new(quotas: Arc<Quotas>, target: &Target, address: Option<IpAddr>) -> Self {
        let asks = |mount| quotas.ask_for_roles(mount);
        let waits = target.logs_in() && target.mount.as_deref().is_some_and(asks);
        Self { quotas, address, waits }
    }

    /// Counts the request, unless it is counted after its body.
    pub(super) fn before_the_body(&self, state: &State, target: &Target, asked: &Asked) -> Option<Standing> {
        if self.waits { None } else { self.count(target, asked, target.role(asked), state.clock.now()) }
    }

    /// Counts the request if it is counted after its body and the body cannot be read.
    pub(super) fn without_a_body(&self, state: &State, target: &Target, asked: &Asked) -> Option<Standing> {
        if self.waits { self.count(target, asked, "", state.clock.now()) } else { None }
    }

    /// Counts the request if it is counted after its body.
    pub(super) fn behind_the_body(
        &self,
        state: &State,
        target: &Target,
        asked: &Asked,
        sent: &Fields,
    ) -> Option<Standing> {
        let mount = target.mount.as_deref().filter(|_| self.waits)?;
        self.count(target, asked, &state.auth.login_role(mount, sent), state.clock.now())
    }

    fn count(&self, target: &Target, asked: &Asked, role: &str, now: Time) -> Option<Standing> {
        let below = asked.path.get(target.below.clone()).unwrap_or_default();
        let mount = target.mount.as_deref().map(|mount| (mount, below));
        let request = Request { path: &asked.path, mount, role, address: self.address };
        let taken = self.quotas.take(&request, now)?;
        let QuotaConfig { enable_rate_limit_audit_logging: audited, enable_rate_limit_response_headers: shown, .. } =
            *self.quotas.config();
        Some(Standing { taken, audited, shown })
    }
}

/// The caller's state in the quota of a request.
pub(super) struct Standing {
    taken: Taken,
    /// `true` if a rejection is audited.
    audited: bool,
    /// `true` if the response has rate limit headers.
    shown: bool,
}

impl Standing {
    /// `true` if the request is rejected without audit.
    pub(super) fn is_quiet(&self) -> bool {
        !self.taken.granted && !self.audited
    }

    /// Rejects the request if the quota is exceeded.
    ///
    /// # Errors
    /// `Quota` when the quota is exceeded.
    pub(super) fn check(&self, path: &str) -> Result<()> {
        if self.taken.granted {
            return Ok(());
        }
        Err(Error::new(Kind::Quota, format!("request path {path:?}: rate limit quota exceeded")))
    }

    /// Adds the rate limit headers to the response.
    pub(super) fn show(&self, response: &mut HttpResponse) {
        let Taken { granted, limit, remaining, reset, retry_after, .. } = self.taken;
        if !granted {
            set_text(response, RETRY_AFTER, &retry_after.to_string());
        }
        if self.shown {
            for (name, value) in [(&LIMIT, limit), (&REMAINING, remaining), (&RESET, reset)] {
                set_text(response, name.clone(), &value.to_string());
            }
        }
    }
}
