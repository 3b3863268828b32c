//! The command line for reports, with secrets redacted.

const REDACTED: &str = "***";
/// Words of a name whose value is a secret.
const SECRET_NAMES: [&str; 6] = ["token", "password", "passwd", "secret", "pin", "credential"];
/// Endings of a name whose value is no secret but a name or a path, even if the name contains such a word.
const PUBLIC_ENDINGS: [&str; 4] = ["header", "file", "name", "label"];

/// Returns the arguments as a shell command, with secrets redacted.
pub(crate) fn redacted(arguments: impl Iterator<Item = String>) -> String {
    let mut is_value = false;
    let shown = arguments.map(|argument| {
        let secret = std::mem::replace(&mut is_value, names_secret(&argument));
        quoted(&if secret { REDACTED.to_owned() } else { text(&argument) })
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Redacts an argument, which may be a command line itself.
fn text(argument: &str) -> String {
    let mut is_value = false;
    let words = argument.split(' ').map(|of| {
        let secret = std::mem::replace(&mut is_value, names_secret(of));
        if secret && !of.is_empty() { REDACTED.to_owned() } else { word(of) }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Redacts the value of `NAME=VALUE` and `NAME:VALUE`, and the password of a URL.
fn word(of: &str) -> String {
    if let Some((name, value)) = of.split_once(['=', ':'])
        && is_secret(name)
        && !value.is_empty()
    {
        return format!("{name}{}{REDACTED}", &of[name.len()..=name.len()]);
    }
    let Some((scheme, rest)) = of.split_once("://") else { return of.to_owned() };
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{scheme}://{user}:{REDACTED}@{host}{}", &rest[authority.len()..]),
        None => of.to_owned(),
    }
}

/// `true` if the next word is a secret: `word` is an option without its value, or a header name.
fn names_secret(word: &str) -> bool {
    match word.strip_suffix(':') {
        Some(header) => is_secret(header),
        None => word.starts_with('-') && !word.contains('=') && is_secret(word),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.trim_matches(['"', '\'']).to_ascii_lowercase();
    let words = || name.split(|c: char| !c.is_ascii_alphanumeric());
    words().any(|word| SECRET_NAMES.contains(&word)) && !PUBLIC_ENDINGS.iter().any(|end| name.ends_with(end))
}

fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+*".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_command_line_are_redacted() {
        for (arguments, shown) in [
            (&["issue", "--token", "hvs.x", "--mount", "pki"][..], "issue --token *** --mount pki"),
            (&["issue", "--token=hvs.x"], "issue --token=***"),
            (&["--other-token", "a b", "--token-header", "X-Own"], "--other-token *** --token-header X-Own"),
            (
                &["--other-command", "bao server -dev-root-token-id=root -dev"],
                "--other-command 'bao server -dev-root-token-id=*** -dev'",
            ),
            (&["--other-command", "A_TOKEN=x it --password y z"], "--other-command 'A_TOKEN=*** it --password *** z'"),
            (&["curl -H X-Vault-Token: t http://u:p@host/a"], "'curl -H X-Vault-Token: *** http://u:***@host/a'"),
            (&["--addr", "http://127.0.0.1:8200", "--json", "it's"], "--addr http://127.0.0.1:8200 --json 'it'\\''s'"),
        ] {
            assert_eq!(redacted(arguments.iter().map(|&argument| argument.to_owned())), shown);
        }
    }
}
