//! Validation of arguments that become a part of a request path. A name such as `../rotate` would send the request,
//! with its token, to another API path.

use crate::auth::mounts::engine_path;
use crate::fields::is_name;

pub(super) fn parse_mount(text: &str) -> Result<String, &'static str> {
    engine_path(text).map_err(|_| {
        "must be the path of a certificate authority's mount: letters, digits, '_', '.' and '-', with '/' between, \
         and not a reserved path such as sys"
    })
}

pub(super) fn parse_login_method(text: &str) -> Result<String, &'static str> {
    let path = text.trim_matches('/');
    match !path.is_empty() && path.split('/').all(is_name) {
        true => Ok(path.to_owned()),
        false => {
            Err("must be the path of a login method, such as approle: names of letters, digits and '_', '/' between")
        }
    }
}

pub(super) fn parse_role(text: &str) -> Result<String, &'static str> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("must be the name of a role: letters, digits and '_', and '-' and '.' except at either end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_or_role_that_changes_the_path_is_rejected() {
        for text in ["", "/", ".", "..", "../rotate", "../../sys/rotate", "a/../b", "a//b", "a/./b", "sys/rotate?x="]
            .into_iter()
            .chain(["a?b", "a#b", "a%2e", "%2e%2e", "a\\b", "..\\rotate", "a\nb", "a\tb", "a b", "a\u{7f}", "\u{fe}"])
        {
            assert!(parse_mount(text).is_err() && parse_role(text).is_err(), "{text:?}");
        }
        assert!(parse_mount("sys").is_err() && parse_mount("sys/rotate").is_err());
        assert!(parse_role("a/b").is_err() && parse_role("-a").is_err());
        assert_eq!(parse_mount("/ca/web.v1/").as_deref(), Ok("ca/web.v1"));
        assert_eq!(parse_role("web-v1.2_b").as_deref(), Ok("web-v1.2_b"));
    }
}
