//! Hints for common errors: the next step for the user, returned in `warnings`.
//!
//! Clients parse and compare error texts, so the hint is separate from the text. Errors that must reveal nothing (an
//! unknown token, a missing object) have no hint.

use crate::error::{Error, Kind};

/// Returns the hint for the error of a request below `mount`. `limit` is the body limit of the route in bytes,
/// `max_limit` the configured limit.
pub(super) fn hint_for(error: &Error, mount: &str, limit: usize, max_limit: usize) -> Option<String> {
    let text = error.text();
    match error.kind() {
        Kind::TooLarge if limit < max_limit => {
            Some(format!("the limit of this route is {limit} bytes and is not configurable"))
        }
        Kind::TooLarge => Some(format!("the limit is {limit} bytes (setting max_request_size)")),
        Kind::NotFound if text.starts_with("no handler for route ") => Some(
            "nothing is mounted at that path: GET /v1/sys/mounts lists the mounts, and POST /v1/sys/mounts/PATH with \
             {\"type\": \"pki\"} mounts a certificate authority"
                .to_owned(),
        ),
        Kind::Invalid => hint_for_invalid(text, mount),
        _ => None,
    }
}

fn hint_for_invalid(text: &str, mount: &str) -> Option<String> {
    // Mounts of authentication methods do not have the paths in these hints.
    let with_mount_path = |step: &str| (!mount.starts_with("auth/")).then(|| step.replace("MOUNT/", mount));
    if text.starts_with("unknown role: ") {
        return with_mount_path(
            "GET /v1/MOUNT/roles?list=true lists the roles of the mount, and POST /v1/MOUNT/roles/NAME creates a role",
        );
    }
    if text.contains("enforce_hostnames requires") {
        return with_mount_path(
            "host names have letters, digits, '-' and '.', and no '_': use such a name, or set enforce_hostnames to false \
             on the role (PATCH /v1/MOUNT/roles/NAME)",
        );
    }
    if text.contains(" allowed by this role") {
        return with_mount_path(
            "GET /v1/MOUNT/roles/NAME shows what the role allows: allowed_domains with allow_subdomains, \
             allow_bare_domains, allow_glob_domains, or allow_any_name; allow_ip_sans, allowed_uri_sans and the like \
             for names of other kinds",
        );
    }
    if text.contains(" is beyond the expiration of the CA certificate") {
        return with_mount_path(
            "request a shorter ttl, or set one in the role or the mount; leaf_not_after_behavior = \"truncate\" of the \
             issuer (POST /v1/MOUNT/issuer/default) ends certificates with the CA certificate; for a longer ttl, renew \
             the authority with POST /v1/MOUNT/root/rotate/internal or a new intermediate",
        );
    }
    match text {
        "backend type must be specified as a string" => {
            Some("set the field type in the body, such as {\"type\": \"pki\"}".to_owned())
        }
        _ if text.starts_with("unknown mount type: ") => Some(
            "secret engines have the type pki (POST /v1/sys/mounts/PATH), authentication methods approle, jwt or cloudb \
             (POST /v1/sys/auth/PATH)"
                .to_owned(),
        ),
        _ => None,
    }
}
