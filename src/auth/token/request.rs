//! The fields of a request to create a token.

use std::collections::BTreeMap;
use std::time::Duration;

use super::terms::parse_uses;
use crate::auth::identity::check_metadata;
use crate::auth::names::normalize_token_policies;
use crate::error::{Error, Result};
use crate::fields::{Fields, ListLimit};

const MAX_DISPLAY_NAME_BYTES: usize = 128;

/// The parsed fields of a request to create a token. A zero duration and an empty list mean that the field was not
/// given.
pub(super) struct TokenRequest {
    pub(super) policies: Vec<String>,
    pub(super) no_parent: bool,
    pub(super) no_default_policy: bool,
    pub(super) renewable: bool,
    pub(super) ttl: Duration,
    pub(super) explicit_max_ttl: Duration,
    pub(super) period: Duration,
    /// Maximum number of uses of the token; 0 for no limit.
    pub(super) uses: u32,
    /// `true` for a batch token, `false` for a service token, `None` for the role's default.
    pub(super) batch: Option<bool>,
    pub(super) display_name: String,
    pub(super) meta: BTreeMap<String, String>,
    /// Name of an alias at the token mount. The token gets the entity of this alias. `""` for none.
    pub(super) entity_alias: String,
}

impl TokenRequest {
    /// Parses the fields of the request.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule.
    pub(super) fn parse(fields: &Fields) -> Result<Self> {
        let batch = match fields.text("type")?.unwrap_or_default().as_str() {
            "" => None,
            "service" => Some(false),
            "batch" => Some(true),
            _ => return Err(Error::invalid("invalid 'token_type' value")),
        };
        if fields.nonempty_text("id")?.is_some() {
            return Err(Error::invalid("id: tokens cannot be chosen, they are always random"));
        }
        let time = |name| Ok::<_, Error>(fields.duration(name)?.unwrap_or_default());
        let ttl = time("ttl")?;
        let lease = time("lease")?;
        Ok(Self {
            policies: normalize_token_policies(
                "policies",
                fields.list_within("policies", ListLimit::LIST.rejecting_only_empty())?.unwrap_or_default(),
            )?,
            no_parent: fields.bool("no_parent")?.unwrap_or(false),
            no_default_policy: fields.bool("no_default_policy")?.unwrap_or(false),
            renewable: fields.bool("renewable")?.unwrap_or(true),
            ttl: if ttl.is_zero() { lease } else { ttl },
            explicit_max_ttl: time("explicit_max_ttl")?,
            period: time("period")?,
            uses: parse_uses(fields, "num_uses", "number of uses cannot be negative")?,
            batch,
            display_name: parse_display_name(&fields.text("display_name")?.unwrap_or_default())?,
            meta: parse_metadata(fields)?,
            entity_alias: fields.text_within("entity_alias", MAX_DISPLAY_NAME_BYTES)?.unwrap_or_default(),
        })
    }
}

/// Returns the display name of the token: `token-` and `name`. In `name`, all characters except ASCII letters and
/// digits are replaced by `-`. If `name` is empty, returns `token`.
fn parse_display_name(name: &str) -> Result<String> {
    if name.len() > MAX_DISPLAY_NAME_BYTES {
        return Err(Error::invalid(format!("display_name: longer than {MAX_DISPLAY_NAME_BYTES} bytes")));
    }
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Ok(format!("token-{plain}").trim_end_matches('-').to_owned())
}

fn parse_metadata(fields: &Fields) -> Result<BTreeMap<String, String>> {
    // Only the total length of the values is limited (below), not that of a single value.
    let meta = fields.map_within("meta", ListLimit { bytes: usize::MAX, ..ListLimit::LIST })?.unwrap_or_default();
    check_metadata("meta", &meta)?;
    Ok(meta)
}
