//! Names of the operating system's users, for messages. They come from `/etc/passwd` only, so users of a directory
//! service have no name here.

const PASSWD_FILE: &str = "/etc/passwd";

/// Returns the name of the user with this user id, or `None` if `/etc/passwd` does not list the user.
pub fn find_name(user: u32) -> Option<String> {
    let users = std::fs::read_to_string(PASSWD_FILE).unwrap_or_default();
    find_name_in(user, &users).map(str::to_owned)
}

/// Returns the name of the user with this user id, or the id as text if the name is unknown.
pub fn display_name(user: u32) -> String {
    find_name(user).unwrap_or_else(|| user.to_string())
}

fn find_name_in(user: u32, users: &str) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id = fields.nth(1)?;
        (id.parse() == Ok(user)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_is_read_from_passwd() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\nsignet:x:998:997::/var/lib/signet:/usr/sbin/nologin\n";
        assert_eq!((find_name_in(998, users), find_name_in(0, users)), (Some("signet"), Some("root")));
        assert_eq!((find_name_in(997, users), find_name_in(998, "signet:x")), (None, None));
    }
}
