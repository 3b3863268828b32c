//! The token of a client command: given by an argument or an environment variable, either as text or as the name of a
//! file.
//!
//! Arguments take precedence over variables. SIGNET_TOKEN_FILE takes precedence over SIGNET_TOKEN, because another
//! process may renew the token in the file.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

/// Maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: u64 = 64 << 10;
/// Environment variables for the token and for the token file. They are not declared with clap's `env`, because then
/// their values could not be distinguished from arguments.
pub(super) const TOKEN_VARIABLES: [&str; 2] = ["SIGNET_TOKEN", "SIGNET_TOKEN_FILE"];

#[derive(clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct TokenArguments {
    /// Token for the server. Arguments are visible to all users of the machine; default: the token in SIGNET_TOKEN.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// File of the token. It is read for every request, so another process may renew it; default: the file that
    /// SIGNET_TOKEN_FILE names.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The token of a login; takes precedence over all others.
    #[arg(skip)]
    login_token: Mutex<Option<Secret>>,
}

/// Where a token comes from: the text itself or a file, with the name of the argument or variable that gave it, for
/// messages.
enum ClientTokenSource {
    Text(&'static str, Secret),
    File(&'static str, PathBuf),
}

impl TokenArguments {
    /// Returns the token for a request.
    ///
    /// # Errors
    /// `Invalid` when no token is given, or the token file cannot be read.
    pub(super) fn token(&self) -> Result<Secret> {
        self.token_if_given()?
            .ok_or_else(|| Error::invalid("SIGNET_TOKEN: not set; set it to a token, or name a file with --token-file"))
    }

    /// Returns the token for a request; `None` if none is given.
    ///
    /// # Errors
    /// `Invalid` when the token file cannot be read, or the token is malformed.
    pub(super) fn token_if_given(&self) -> Result<Option<Secret>> {
        if let Some(token) = &*self.login_token() {
            return Ok(Some(token.clone()));
        }
        self.source().map(ClientTokenSource::read).transpose()
    }

    pub(super) fn source_name(&self) -> String {
        if self.login_token().is_some() {
            return "--login".to_owned();
        }
        match self.source() {
            Some(ClientTokenSource::File(_, file)) => file.display().to_string(),
            Some(ClientTokenSource::Text(name, _)) => name.to_owned(),
            None => TOKEN_VARIABLES[0].to_owned(),
        }
    }

    pub(super) fn use_login(&self, token: Secret) {
        *self.login_token() = Some(token);
    }

    pub(super) fn has_login(&self) -> bool {
        self.login_token().is_some()
    }

    fn login_token(&self) -> MutexGuard<'_, Option<Secret>> {
        self.login_token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn source(&self) -> Option<ClientTokenSource> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let [token, file] = TOKEN_VARIABLES;
        let arguments = self.token.as_deref().map(|text| ClientTokenSource::Text("--token", Secret::new(text)));
        arguments
            .or_else(|| self.token_file.clone().map(|path| ClientTokenSource::File("--token-file", path)))
            .or_else(|| variable(file).map(|path| ClientTokenSource::File(file, path.into())))
            .or_else(|| {
                variable(token).map(|text| ClientTokenSource::Text(token, Secret::new(text.into_encoded_bytes())))
            })
    }
}

impl ClientTokenSource {
    fn read(self) -> Result<Secret> {
        let (source, text) = match self {
            Self::Text(name, text) => (name.to_owned(), text),
            Self::File(name, file) => {
                let text = File::open(&file)
                    .and_then(|opened| Secret::read(opened, MAX_TOKEN_BYTES))
                    .map_err(|e| Error::of_file(name, &file, "read", e).with_kind(Kind::Invalid))?;
                (format!("{name}: {}", file.display()), text)
            }
        };
        match text.expose_text().map(str::trim) {
            Some("") => Err(Error::invalid(format!("{source}: must hold a token"))),
            Some(token) if !token.contains(char::is_control) => Ok(Secret::new(token)),
            _ => Err(Error::invalid(format!("{source}: invalid characters"))),
        }
    }
}
