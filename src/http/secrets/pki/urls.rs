//! Authority information URLs (`config/urls`, and in the settings of issuers), and the base URLs of a mount
//! (`config/cluster`).

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::fields::{Fields, ListFieldSlot, Resource as _};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::{Call, concat_fields};
use crate::pki::ca::changes;
use crate::pki::mount::cluster::{Cluster, ClusterUrl, MAX_URL_BYTES};
use crate::pki::mount::urls::Urls;

/// Fields of `config/urls`.
pub(super) const FIELDS: &[&str] = &concat_fields::<5>(&[Urls::FIELDS, &[TEMPLATING_FIELD]]);
/// Fields of `config/cluster`.
pub(super) const CLUSTER_FIELDS: &[&str] = &["path", "aia_path"];
const TEMPLATING_FIELD: &str = "enable_templating";

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(Value::Object(to_json(&call.authority().await?.view().urls.value, TEMPLATING_FIELD))))
}

pub(super) async fn write(mut call: Call) -> Result<HandlerResponse> {
    let fields = std::mem::take(&mut call.fields);
    let merge = move |stored: &Urls| merged(stored, &fields, TEMPLATING_FIELD);
    let authority = call.authority().await?;
    let mut warnings = changes::write_urls(&authority, merge).await?;
    let view = authority.view();
    if let Some(path) = public_listener_url(&call)
        && view.global_urls().needs_aia_path()
    {
        warnings.add(format!("config/cluster: aia_path is not set; a write without aia_path sets it to {path}"));
    }
    Ok(read(call).await?.with_warnings(warnings))
}

/// Returns the URL of the mount on the public listener, if the address of that listener is known.
fn public_listener_url(call: &Call) -> Option<String> {
    let origin = call.state.public_origin()?;
    Some(format!("{origin}/v1/{}", call.mount.path.trim_end_matches('/')))
}

/// Merges the lists of URLs in `fields` into the stored ones; absent lists are unchanged. `templating` is the name of
/// the templating flag.
///
/// # Errors
/// `Invalid` with the name of a member that is not a list or is too long.
pub(super) fn merged(stored: &Urls, fields: &Fields, templating: &str) -> Result<Urls> {
    let mut urls = stored.clone();
    for ListFieldSlot { slot, limit } in Urls::LISTS {
        slot.set_if_given(&mut urls, fields.list_within(slot.name, *limit)?);
    }
    if let Some(flag) = fields.bool(templating)? {
        urls.templating = flag;
    }
    Ok(urls)
}

pub(super) fn to_json(urls: &Urls, templating: &str) -> Map<String, Value> {
    let mut members = urls.to_members();
    members.insert(templating.to_owned(), json!(urls.templating));
    members
}

pub(super) async fn read_cluster(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    let Cluster { path, aia_path } = &view.cluster.value;
    Ok(HandlerResponse::data(json!({ "path": path.as_str(), "aia_path": aia_path.as_str() })))
}

pub(super) async fn write_cluster(mut call: Call) -> Result<HandlerResponse> {
    let fields = std::mem::take(&mut call.fields);
    let authority = call.authority().await?;
    let default = public_listener_url(&call).filter(|_| !fields.has("aia_path"));
    let assigned = default.clone().filter(|_| authority.view().cluster.value.aia_path == ClusterUrl::default());
    let merge = move |stored: &Cluster| merged_cluster(stored, &fields, default.as_deref());
    let mut warnings = changes::write_cluster(&authority, merge).await?;
    if let Some(path) = assigned {
        warnings.add(format!("aia_path: not given; set to the URL of the public listener, {path}"));
    }
    Ok(read_cluster(call).await?.with_warnings(warnings))
}

/// Merges the base URLs in `fields` into the stored ones. Absent URLs are unchanged, and empty text clears a URL. An
/// unset `aia_path` becomes `public`, the mount's URL on the public listener.
fn merged_cluster(stored: &Cluster, fields: &Fields, public: Option<&str>) -> Result<Cluster> {
    let mut cluster = stored.clone();
    if let Some(public) = public.filter(|_| stored.aia_path == ClusterUrl::default() && !fields.has("aia_path")) {
        cluster.aia_path = ClusterUrl::new("aia_path", public)?;
    }
    for (name, address) in [("path", &mut cluster.path), ("aia_path", &mut cluster.aia_path)] {
        if let Some(given) = fields.text_within(name, MAX_URL_BYTES)? {
            *address = ClusterUrl::new(name, given)?;
        }
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        Fields::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn urls_absent_lists_stay() {
        let first = fields(r#"{"crl_distribution_points":"http://h/{{issuer_id}}/crl","enable_templating":true}"#);
        let first = merged(&Urls::default(), &first, TEMPLATING_FIELD).unwrap();
        let second = merged(&first, &fields(r#"{"ocsp_servers":"http://h/o","crl_distribution_points":null}"#), "t");
        let second = second.unwrap();
        assert_eq!(second, Urls { ocsp_servers: vec!["http://h/o".to_owned()], ..first.clone() });
        let shown = to_json(&second, TEMPLATING_FIELD);
        assert_eq!(shown["crl_distribution_points"], json!(["http://h/{{issuer_id}}/crl"]));
        assert_eq!((shown.len(), &shown[TEMPLATING_FIELD]), (FIELDS.len(), &json!(true)));
    }

    #[test]
    fn cluster_urls_are_merged_and_refused_by_their_field() {
        let merged = |stored: &Cluster, json: &str| merged_cluster(stored, &fields(json), None);
        let one = merged(&Cluster::default(), r#"{"path":"https://ca.test/v1/pki"}"#).unwrap();
        let both = merged(&one, r#"{"aia_path":"http://aia.test"}"#).unwrap();
        assert_eq!((both.path.as_str(), both.aia_path.as_str()), ("https://ca.test/v1/pki", "http://aia.test"));
        let cleared = merged(&both, r#"{"path":"","aia_path":null}"#).unwrap();
        assert_eq!((cleared.path.as_str(), cleared.aia_path.as_str()), ("", "http://aia.test"));
        let public = |stored: &Cluster, json: &str| merged_cluster(stored, &fields(json), Some("http://pub.test/v1/a"));
        assert_eq!(public(&one, "{}").unwrap().aia_path.as_str(), "http://pub.test/v1/a");
        assert_eq!(public(&one, r#"{"aia_path":""}"#).unwrap().aia_path.as_str(), "");
        assert_eq!(public(&both, "{}").unwrap(), both);
        for name in CLUSTER_FIELDS {
            let error = merged(&both, &format!(r#"{{"{name}":"ca.test"}}"#)).unwrap_err();
            assert!(error.text().starts_with(&format!("{name}: ")), "{error}");
        }
    }
}
