//! Rate-limit quotas on the way of a request.
//!
//! A request is counted before anybody is recognised and before its body is read. Only where a quota holds for one
//! role of a login, it is counted as soon as the body has told the role.

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

/// The quotas that a request may have to pass.
pub(super) struct Gate {
    quotas: Arc<Quotas>,
    address: Option<IpAddr>,
    /// Whether the body tells under which role it is counted.
    waits: bool,
}

impl Gate {
    /// The gate of a request from there to `target`.
    pub(super) fn new(quotas: Arc<Quotas>, target: &Target, address: Option<IpAddr>) -> Self {
        let asks = |mount| quotas.ask_for_roles(mount);
        let waits = target.logs_in() && target.mount.as_deref().is_some_and(asks);
        Self { quotas, address, waits }
    }

    /// Counts the request, unless its body has to be read first.
    pub(super) fn before_the_body(&self, state: &State, target: &Target, asked: &Asked) -> Option<Standing> {
        if self.waits { None } else { self.count(target, asked, target.role(asked), state.clock.now()) }
    }

    /// Counts the request, if its body had to be read first and could not be.
    pub(super) fn without_a_body(&self, state: &State, target: &Target, asked: &Asked) -> Option<Standing> {
        if self.waits { self.count(target, asked, "", state.clock.now()) } else { None }
    }

    /// Counts the request, if its body had to be read first.
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

/// How a caller stands with the quota that holds for a request.
pub(super) struct Standing {
    taken: Taken,
    /// Whether the audit is told of the refusal.
    audited: bool,
    /// Whether the caller is told what is left.
    shown: bool,
}

impl Standing {
    /// Whether the request is refused and nobody is to record that.
    pub(super) fn is_quiet(&self) -> bool {
        !self.taken.granted && !self.audited
    }

    /// # Errors
    /// `Quota` when the request may not go on.
    pub(super) fn check(&self, path: &str) -> Result<()> {
        if self.taken.granted {
            return Ok(());
        }
        Err(Error::new(Kind::Quota, format!("request path {path:?}: rate limit quota exceeded")))
    }

    /// Tells the caller.
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
