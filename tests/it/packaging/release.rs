//! Releases: the format of the CHANGELOG, and `packaging/release` in clones of this repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::root;
use crate::crash::left_out_anywhere;
use crate::process::{refused, run};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SECTIONS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

fn git(folder: &Path, words: &[&str]) -> String {
    let identity = ["-c", "user.name=test", "-c", "user.email=test@example.test", "-c", "commit.gpgsign=false"];
    run(Command::new("git").args(identity).args(words).current_dir(folder).env("TZ", "UTC")).0.trim().to_owned()
}

/// A clone with the release script and CHANGELOG of this tree; `None` for an archive of the sources.
fn cloned() -> Option<tempfile::TempDir> {
    if !root().join(".git").exists() {
        left_out_anywhere("an archive of the sources cannot be cloned");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["clone", "--quiet", root().to_str().unwrap(), "."]);
    let tracked = ["Cargo.lock", "Cargo.toml", "CHANGELOG.md", "packaging"];
    for name in tracked {
        let output = Command::new("cp").args(["-RT"]).args([root().join(name), folder.path().join(name)]).output();
        assert!(output.unwrap().status.success(), "{name}");
    }
    git(folder.path(), &["add", "--all"]);
    let time = git(folder.path(), &["log", "-1", "--format=%cI"]);
    let mut commit = Command::new("git");
    commit.args(["-c", "user.name=test", "-c", "user.email=test@example.test", "commit", "--quiet", "--allow-empty"]);
    commit.args(["-m", "test"]).env("GIT_AUTHOR_DATE", &time).env("GIT_COMMITTER_DATE", &time);
    assert!(commit.current_dir(folder.path()).output().unwrap().status.success());
    Some(folder)
}

fn release(clone: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(clone.join("packaging/release"));
    command.args(arguments).current_dir("/");
    command
}

#[test]
fn changelog_has_the_form_of_keep_a_changelog() {
    let text = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let releases: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(releases[0], "[Unreleased]");
    let (version, date) = releases[1].split_once("] - ").unwrap();
    assert_eq!(version, format!("[{VERSION}"), "the newest release is that of Cargo.toml");
    assert!(date.len() == 10 && date.split('-').all(|part| part.parse::<u16>().is_ok()), "{date}");
    for release in text.split("\n## ").skip(1) {
        let mut sections: Vec<&str> = release.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        assert!(sections.iter().all(|section| SECTIONS.contains(section)), "{sections:?}");
        sections.sort_unstable();
        let count = sections.len();
        sections.dedup();
        assert_eq!(sections.len(), count, "each section appears once in a release");
    }
}

#[test]
fn release_rejects_changes_and_other_versions() {
    let Some(clone) = cloned() else { return };
    let clone = clone.path();
    // A cargo-deb of another version.
    let tools = tempfile::tempdir().unwrap();
    std::fs::copy("/bin/true", tools.path().join("cargo-deb")).unwrap();
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let error = |arguments: &[&str]| refused(release(clone, arguments).env("PATH", &path));
    let missing = error(&[]);
    assert!(missing.contains("cargo install cargo-deb --version "), "{missing}");
    assert!(error(&["--dirty"]).contains("--dirty: no such argument"));
    assert!(error(&["--program", "/nowhere"]).contains("--program: /nowhere: no such file"));
    let both = error(&["--require-image", "--program", "/bin/true"]);
    assert!(both.contains("not with --program"), "{both}");
    let key = refused(release(clone, &[]).env("PATH", &path).env("SIGNET_RELEASE_KEY", "/nowhere"));
    assert!(key.contains("SIGNET_RELEASE_KEY: /nowhere: no such file"), "{key}");

    std::fs::write(clone.join("new"), "").unwrap();
    let dirty = error(&[]);
    assert!(dirty.contains("the tree has changes") && dirty.contains("?? new"), "{dirty}");
    std::fs::remove_file(clone.join("new")).unwrap();
    let text = std::fs::read_to_string(clone.join("CHANGELOG.md")).unwrap();
    let other = text.replace(&format!("## [{VERSION}] - "), "## [99.0.0] - ");
    std::fs::write(clone.join("CHANGELOG.md"), other).unwrap();
    git(clone, &["commit", "--quiet", "--all", "-m", "another version"]);
    let version = error(&[]);
    assert!(version.contains(&format!("the newest release is [99.0.0], and Cargo.toml has {VERSION}")), "{version}");
    assert!(!clone.join("target").exists(), "nothing is made");
}

/// The folder of the cargo-deb version that `packaging/release` requires, if tests/run has installed it.
fn cargo_deb() -> Option<PathBuf> {
    let folder = root().join("target/cargo-deb/bin");
    if folder.join("cargo-deb").exists() {
        return Some(folder);
    }
    left_out_anywhere("there is no cargo-deb in target/cargo-deb; packaging/release says how to install it");
    None
}

#[test]
fn release_of_a_program_is_the_same_in_every_folder() {
    let Some(tools) = cargo_deb() else { return };
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let pack = |clone: &Path, key: &Path| {
        let mut command = release(clone, &["--program", env!("CARGO_BIN_EXE_signet")]);
        command.env("SIGNET_RELEASE_KEY", key);
        let Output { status, stdout, stderr } = command.env("PATH", &path).output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    };
    let (Some(first), Some(second)) = (cloned(), cloned()) else { return };
    git(second.path(), &["fetch", "--quiet", first.path().to_str().unwrap()]);
    git(second.path(), &["reset", "--quiet", "--hard", "FETCH_HEAD"]);
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("release");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    let said = pack(first.path(), &key);
    assert!(said.contains("SKIPPED: signet-") && said.contains("There is no image in this release."), "{said}");
    let unsigned = pack(second.path(), Path::new(""));
    assert!(unsigned.contains("This release is not signed.") && !said.contains("is not signed"), "{said}{unsigned}");
    let folder = |clone: &Path| clone.join(format!("target/release-{VERSION}"));
    let sums = |clone: &Path| std::fs::read_to_string(folder(clone).join("SHA256SUMS")).unwrap();
    assert_eq!(sums(first.path()), sums(second.path()));
    assert_eq!(sums(first.path()).lines().count(), 3, "package, tarball, debug symbols");

    let run = |words: &[&str]| run(Command::new(words[0]).args(&words[1..]).current_dir(folder(first.path()))).0;
    run(&["sha256sum", "--check", "--strict", "SHA256SUMS"]);
    let verify = r#"printf 'signet %s\n' "$(cat "$0.pub")" >"$0.signers"
        ssh-keygen -Y verify -f "$0.signers" -I signet -n signet-release -s SHA256SUMS.sig <SHA256SUMS"#;
    run(&["sh", "-ec", verify, key.to_str().unwrap()]);
    let time = git(first.path(), &["log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%d %H:%M:%S"]);
    let listed = run(&["sh", "-c", "TZ=UTC tar --list --verbose --full-time --numeric-owner --file signet-*.tar.gz"]);
    assert!(listed.contains("/usr/bin/signet") && listed.contains("/usr/share/man/man1/signet.1.gz"), "{listed}");
    let at = |line: &str| line.contains(" 0/0 ") && line.contains(&time);
    assert!(listed.lines().all(at), "{time}: {listed}");
    let packed = run(&["sh", "-c", "dpkg-deb --contents signet_*.deb"]);
    assert!(packed.contains("./usr/lib/systemd/system/signet-backup.timer"), "{packed}");
    let version = run(&["sh", "-c", "dpkg-deb --field signet_*.deb Version"]);
    let field = format!("{VERSION}-1");
    assert_eq!(version.trim(), field);
}
