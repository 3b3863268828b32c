//! The certificate authority engine on the wire: its route table and, in the files below, its handlers.

mod authority;
mod issuers;
mod issuing;
mod keys;
mod roles;

use super::answer::Answer;
use super::route::{Access, Call, Operation, Route};
use crate::error::Result;
use crate::fields::Fields;
use crate::pki::changes::ISSUER_FIELDS;
use crate::pki::request::{ISSUE_FIELDS, SIGN_FIELDS};
use crate::pki::{revocation, role, root, urls};

/// A route of a PKI mount, with its handler as a plain async function.
macro_rules! route {
    ($operation:ident $pattern:literal $access:ident $fields:expr => $handler:path) => {
        Route {
            operation: Operation::$operation,
            pattern: $pattern,
            access: Access::$access,
            fields: $fields,
            handler: |call| Box::pin($handler(call)),
        }
    };
}

const LIST: &[&str] = &["after", "limit"];
const URLS_FIELDS: &[&str] = &[
    urls::LIST_FIELDS[0],
    urls::LIST_FIELDS[1],
    urls::LIST_FIELDS[2],
    urls::LIST_FIELDS[3],
    "enable_templating",
];

/// Every route of a PKI mount, relative to the mount.
pub static ROUTES: &[Route] = &[
    route!(List "roles" Token LIST => roles::list),
    route!(Read "roles/:name" Token &[] => roles::read),
    route!(Update "roles/:name" Token role::FIELDS => roles::replace),
    route!(Patch "roles/:name" Token role::FIELDS => roles::merge),
    route!(Delete "roles/:name" Token &[] => roles::delete),
    route!(Update "issue/:name" Token ISSUE_FIELDS => issuing::issue),
    route!(Update "issuer/:issuer_ref/issue/:name" Token ISSUE_FIELDS => issuing::issue),
    route!(Update "sign/:name" Token SIGN_FIELDS => issuing::sign),
    route!(Update "issuer/:issuer_ref/sign/:name" Token SIGN_FIELDS => issuing::sign),
    route!(Update "revoke" Token revocation::FIELDS => issuing::revoke),
    route!(Read "crl/rotate" Token &[] => issuing::rotate),
    route!(Update "crl/rotate" Token &[] => issuing::rotate),
    route!(Update "root/generate/:type" Token root::FIELDS => issuers::generate_root),
    route!(Update "issuers/generate/root/:type" Token root::FIELDS => issuers::generate_root),
    route!(Update "root/rotate/:type" Token root::FIELDS => issuers::rotate_root),
    route!(Update "root/replace" Token &["default"] => issuers::replace_root),
    route!(Delete "root" Sudo &[] => issuers::delete_all),
    route!(List "issuers" Open LIST => issuers::list),
    route!(Read "issuer/:issuer_ref" Token &[] => issuers::read),
    route!(Update "issuer/:issuer_ref" Token ISSUER_FIELDS => issuers::replace),
    route!(Patch "issuer/:issuer_ref" Token ISSUER_FIELDS => issuers::merge),
    route!(Delete "issuer/:issuer_ref" Token &[] => issuers::delete),
    route!(Read "config/issuers" Token &[] => issuers::read_config),
    route!(Update "config/issuers" Token &["default", "default_follows_latest_issuer"] => issuers::write_config),
    route!(Read "config/urls" Token &[] => issuers::read_urls),
    route!(Update "config/urls" Token URLS_FIELDS => issuers::write_urls),
    route!(List "keys" Token LIST => keys::list),
    route!(Read "key/:key_ref" Token &[] => keys::read),
    route!(Update "key/:key_ref" Token &["key_name"] => keys::rename),
    route!(Delete "key/:key_ref" Token &[] => keys::delete),
    route!(Read "config/keys" Token &[] => keys::read_config),
    route!(Update "config/keys" Token &["default"] => keys::write_config),
    route!(Read "ca" Open &[] => authority::ca_der),
    route!(Read "ca/pem" Open &[] => authority::ca_pem),
    route!(Read "ca_chain" Open &[] => authority::ca_chain),
    route!(Read "cert/ca" Open &[] => authority::ca_json),
    route!(Read "cert/ca/raw" Open &[] => authority::ca_der),
    route!(Read "cert/ca/raw/pem" Open &[] => authority::ca_pem),
    route!(Read "cert/ca_chain" Open &[] => authority::ca_chain_json),
    route!(Read "cert/crl" Open &[] => authority::crl_json),
    route!(Read "crl" Open &[] => authority::crl_der),
    route!(Read "crl/pem" Open &[] => authority::crl_pem),
    route!(Read "issuer/:issuer_ref/json" Open &[] => authority::issuer_json),
    route!(Read "issuer/:issuer_ref/der" Open &[] => authority::issuer_der),
    route!(Read "issuer/:issuer_ref/pem" Open &[] => authority::issuer_pem),
    route!(Read "issuer/:issuer_ref/crl" Open &[] => authority::issuer_crl_json),
    route!(Read "issuer/:issuer_ref/crl/der" Open &[] => authority::issuer_crl_der),
    route!(Read "issuer/:issuer_ref/crl/pem" Open &[] => authority::issuer_crl_pem),
    route!(Read "cert/:serial" Open &[] => authority::certificate),
    route!(Read "cert/:serial/raw" Open &[] => authority::certificate_der),
    route!(Read "cert/:serial/raw/pem" Open &[] => authority::certificate_pem),
    route!(List "certs" Token LIST => authority::certificates),
    route!(List "certs/revoked" Token LIST => authority::revoked),
];

/// The page that a list request asks for.
struct Page {
    after: String,
    /// `None`: all.
    limit: Option<usize>,
}

impl Page {
    fn of(fields: &Fields) -> Result<Self> {
        let limit = match fields.text("limit")?.as_deref() {
            Some("max") => 0,
            _ => fields.int("limit")?.unwrap_or(0),
        };
        Ok(Self { after: fields.text("after")?.unwrap_or_default(), limit: usize::try_from(limit).ok().filter(|n| *n > 0) })
    }

    /// The page of names that are already in byte order.
    fn cut<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<String> {
        names.filter(|n| *n > self.after.as_str()).take(self.limit.unwrap_or(usize::MAX)).map(str::to_owned).collect()
    }
}

/// An answer of names without details.
fn page_of_names<'a>(call: &Call, names: impl Iterator<Item = &'a str>) -> Result<Answer> {
    Answer::keys(Page::of(&call.fields)?.cut(names), None)
}
