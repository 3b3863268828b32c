//! The token with which `signet renew` calls the server. It is renewed before it expires, or replaced by a new login.
//!
//! A single run renews its token once. With `--service`, the token is renewed at the start and whenever a third of its
//! lifetime has passed. If it cannot be renewed, each of these checks logs a warning, long before the token expires.
//! With `--login`, the command logs in when it has no token, when the server rejects the token, or when the token
//! cannot be renewed and less than a third of its lifetime is left.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::secret::Secret;
use serde::Deserialize;
use serde_json::json;

use super::super::client::{AuthenticatedClient, ClientRequest, ClientResponse};
use super::super::issue::{format_time, read_text};
use super::super::path;

/// The next check of the token is after this fraction (1/3) of its remaining lifetime.
const TOKEN_LIFETIME_DIVISOR: u32 = 3;
/// Maximum time between two checks of the token.
const MAX_TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two checks of the token.
const MIN_TOKEN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const TOKEN_RETRY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
#[command(next_help_heading = "Login")]
pub(super) struct LoginArguments {
    /// Log in with this method and the files below, and again when the token ends.
    #[arg(long, value_enum, conflicts_with_all = ["token", "token_file"])]
    login: Option<ServiceLoginMethod>,
    /// Path of the login method, if it is not the method's name.
    #[arg(long, value_name = "PATH", requires = "login", value_parser = path::parse_login_method)]
    login_path: Option<String>,
    /// File of the role id, for approle.
    #[arg(long, value_name = "FILE", requires = "login", required_if_eq("login", "approle"))]
    role_id_file: Option<PathBuf>,
    /// File of the secret id, for approle; not needed for roles without one.
    #[arg(long, value_name = "FILE", requires = "login")]
    secret_id_file: Option<PathBuf>,
    /// Role to log in as, for jwt.
    #[arg(long, value_name = "NAME", requires = "login", required_if_eq("login", "jwt"), value_parser = path::parse_role)]
    login_role: Option<String>,
    /// File of the JWT, for jwt. It is read at every login, so it may be replaced.
    #[arg(long, value_name = "FILE", requires = "login", required_if_eq("login", "jwt"))]
    jwt_file: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ServiceLoginMethod {
    Approle,
    Jwt,
}

impl LoginArguments {
    pub(super) fn is_given(&self) -> bool {
        self.login.is_some()
    }

    async fn log_in(&self, method: ServiceLoginMethod, caller: &AuthenticatedClient) -> Result<RenewedToken> {
        let name = match method {
            ServiceLoginMethod::Approle => "approle",
            ServiceLoginMethod::Jwt => "jwt",
        };
        let path = format!("auth/{}/login", self.login_path.as_deref().unwrap_or(name));
        let fields = [
            ("role_id", "--role-id-file", &self.role_id_file),
            ("secret_id", "--secret-id-file", &self.secret_id_file),
            ("jwt", "--jwt-file", &self.jwt_file),
        ];
        let mut body = json!({});
        if let Some(role) = &self.login_role {
            body["role"] = role.as_str().into();
        }
        for (field, flag, file) in fields {
            let Some(file) = file else { continue };
            let text = read_text(flag, file)?;
            let text = text.expose_text().map(str::trim).filter(|text| !text.is_empty());
            let missing = || Error::invalid(format!("{flag}: {}: must hold the {field} of the login", file.display()));
            body[field] = text.ok_or_else(missing)?.into();
        }
        let reply = caller.post_without_token(&path, &body).await?;
        let auth = parse_auth(&reply).filter(|auth| !auth.client_token.is_empty()).ok_or_else(|| reply.to_error(""))?;
        caller.use_token(Secret::new(auth.client_token));
        tracing::info!(method = name, seconds = auth.lease_duration, "logged in");
        Ok(RenewedToken { lifetime: lifetime(auth.lease_duration), is_final: false })
    }
}

/// The state of the token after it was renewed or obtained by a login.
pub(super) struct RenewedToken {
    /// Remaining lifetime; `None` if it never expires.
    lifetime: Option<Duration>,
    /// `true` if the token can no longer be renewed, and no `--login` is given to replace it.
    is_final: bool,
}

impl RenewedToken {
    /// Returns the time at which the token expires, in Unix seconds; `None` if it never expires.
    fn end(&self) -> Option<i64> {
        let now = Clock::system().now().unix_timestamp();
        self.lifetime.map(|lifetime| now.saturating_add_unsigned(lifetime.as_secs()))
    }

    /// Logs when the token expires: at the first check, and as a warning at each check if the token can no longer be
    /// renewed.
    fn log(&self, source: &str, is_first: bool) {
        let ends = self.end().map_or_else(|| "never".to_owned(), format_time);
        if self.is_final {
            tracing::warn!(%ends, %source, "the token cannot be renewed any more: give another one, or use --login");
        } else if is_first {
            tracing::info!(%ends, %source, "the token is valid");
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceTokenAuth {
    client_token: String,
    /// Remaining lifetime of the token in seconds; 0 if it never expires.
    lease_duration: u64,
}

fn parse_auth(reply: &ClientResponse) -> Option<ServiceTokenAuth> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ServiceTokenResponse {
        auth: Option<ServiceTokenAuth>,
    }
    let answer: ServiceTokenResponse = reply.json();
    answer.auth.filter(|_| reply.status == 200)
}

fn lifetime(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds)).filter(|lifetime| !lifetime.is_zero())
}

/// Renews the token of `signet renew --service` before it expires.
#[derive(Default)]
pub(super) struct TokenRenewer {
    /// Time of the next check of the token; `None` to check it immediately.
    next: Option<Instant>,
    /// `true` once the expiry time of the token has been logged.
    is_logged: bool,
}

impl TokenRenewer {
    /// Renews the token or logs in, if the next check is due. Returns the time until the check after that.
    pub(super) async fn renew_if_due(&mut self, login: &LoginArguments, caller: &AuthenticatedClient) -> Duration {
        if let Some(left) = self.next.and_then(|next| next.checked_duration_since(Instant::now())) {
            return left;
        }
        let wait = match renew_or_log_in(login, caller).await {
            Ok(token) => {
                token.log(&caller.token_source(), !std::mem::replace(&mut self.is_logged, true));
                let share = token.lifetime.map(|lifetime| lifetime / TOKEN_LIFETIME_DIVISOR);
                share.map_or(MAX_TOKEN_CHECK_INTERVAL, |share| {
                    share.clamp(MIN_TOKEN_CHECK_INTERVAL, MAX_TOKEN_CHECK_INTERVAL)
                })
            }
            Err(error) => {
                tracing::warn!(%error, seconds = TOKEN_RETRY_INTERVAL.as_secs(), "the token cannot be checked or renewed now; retrying");
                TOKEN_RETRY_INTERVAL
            }
        };
        self.next = Some(Instant::now() + wait);
        wait
    }

    /// Makes the next check of the token due immediately. Called after a failed certificate renewal, which the token
    /// may have caused.
    pub(super) fn check_now(&mut self) {
        self.next = None;
    }
}

/// Renews the token, for a run without `--service`. Returns a warning if the renewal fails, or if the token can no
/// longer be renewed and expires before a certificate is due. `dues` contains each certificate file and the time at
/// which it is due, in Unix seconds.
pub(super) async fn renew_token_once(
    login: &LoginArguments,
    caller: &AuthenticatedClient,
    dues: &[(&Path, i64)],
) -> Option<String> {
    let token = match renew_or_log_in(login, caller).await {
        Ok(token) => token,
        Err(error) => return Some(format!("token: not renewed: {error}")),
    };
    let end = token.end().filter(|_| token.is_final)?;
    let (file, due) = dues.iter().find(|(_, due)| *due > end)?;
    Some(format!(
        "token: ends at {}, before {} is due at {}, and cannot be renewed: replace the token in {}, or use --login",
        format_time(end),
        file.display(),
        format_time(*due),
        caller.token_source()
    ))
}

/// Renews the token. With `--login`, logs in instead if there is no token, the server rejects it, or it expires soon
/// and cannot be renewed.
pub(super) async fn renew_or_log_in(login: &LoginArguments, caller: &AuthenticatedClient) -> Result<RenewedToken> {
    if let Some(method) = login.login.filter(|_| !caller.has_token()) {
        return login.log_in(method, caller).await;
    }
    let reply = caller.request(ClientRequest::get("auth/token/lookup-self")).await?;
    match (reply.status, login.login) {
        (200, _) => {}
        (403, Some(method)) => return login.log_in(method, caller).await,
        (403, None) => return Err(reply.to_error(&reply.denial_hint(&caller.token_source()))),
        _ => return Err(reply.to_error("")),
    }
    let token = reply.data();
    let seconds = |name: &str| token[name].as_u64().unwrap_or_default();
    if token["expire_time"].is_null() {
        return Ok(RenewedToken { lifetime: None, is_final: false });
    }
    let before = Duration::from_secs(seconds("ttl"));
    let full = Duration::from_secs(seconds("creation_ttl"));
    let reply = caller.request(ClientRequest::post("auth/token/renew-self", &json!({}))).await?;
    let (lifetime, is_renewed) = match (parse_auth(&reply), reply.status) {
        (Some(auth), _) => {
            let lifetime = lifetime(auth.lease_duration).unwrap_or(before);
            // The token counts as renewed if it has its full lifetime again. One second may have passed since the
            // server renewed it.
            (lifetime, lifetime + Duration::from_secs(1) >= full)
        }
        // The server responds with 400 if the token is not renewable.
        (None, 400) => (before, false),
        (None, _) => return Err(reply.to_error("")),
    };
    match login.login {
        Some(method) if !is_renewed && lifetime < full / TOKEN_LIFETIME_DIVISOR => login.log_in(method, caller).await,
        method => Ok(RenewedToken { lifetime: Some(lifetime), is_final: !is_renewed && method.is_none() }),
    }
}
