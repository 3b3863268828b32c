//! Settings of the authentication method `cloudb`. [`CloudbUrls::check`] validates the URLs, to which the server sends
//! credentials.

use super::reader::SettingReader;
use crate::auth::{CloudbSettings, CloudbUrls};
use crate::fields::Fields;

pub(super) fn read_settings(reader: &mut SettingReader<'_>) -> CloudbSettings {
    let mut url = |name| reader.optional(name, Fields::text, "a URL");
    let urls = CloudbUrls {
        authority: url("cloudb.authority_url"),
        arm: url("cloudb.arm_url"),
        graph: url("cloudb.graph_url"),
        imds: url("cloudb.imds_url"),
    };
    if let Err(error) = urls.check() {
        reader.problems.push(error.text().to_owned());
    }
    let rule = "the absolute path of a file";
    let ca_file = reader.path("cloudb.ca_file", rule);
    if ca_file.as_ref().is_some_and(|file| !file.is_absolute()) {
        reader.report("cloudb.ca_file", &format!("must be {rule}"));
    }
    CloudbSettings { urls, ca_file, ..CloudbSettings::default() }
}
