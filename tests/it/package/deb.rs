//! Builds the Debian package with `dpkg-deb` as `cargo deb --no-build --no-strip` would, in any version. Its only input
//! about the package is the table in Cargo.toml.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

/// Supported keys of the table; an unsupported one would be missing in the tested package.
const KNOWN: [&str; 11] = [
    "assets",
    "conf-files",
    "copyright",
    "depends",
    "extended-description",
    "license-file",
    "maintainer",
    "maintainer-scripts",
    "priority",
    "section",
    "suggests",
];
/// Prefix of the files that `packaging/stage` creates.
const STAGED: &str = "target/package/";

/// The output of `packaging/stage` for the program under test, and packages.
pub struct Staged(tempfile::TempDir);

impl Staged {
    pub fn new() -> Self {
        let staged = Self(tempfile::tempdir().unwrap());
        let script = root().join("packaging/stage");
        staged.run(&[script.to_str().unwrap(), env!("CARGO_BIN_EXE_signet"), "."]);
        staged
    }

    pub fn run(&self, words: &[&str]) -> String {
        let output = Command::new(words[0]).args(&words[1..]).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn package(&self, version: &str) -> PathBuf {
        let manifest: Table = toml::from_str(&std::fs::read_to_string(root().join("Cargo.toml")).unwrap()).unwrap();
        let package = manifest["package"].as_table().unwrap();
        let table = package["metadata"]["deb"].as_table().unwrap();
        for key in table.keys() {
            assert!(KNOWN.contains(&key.as_str()), "{key}");
        }
        let tree = self.0.path().join(format!("tree-{version}"));
        for asset in table["assets"].as_array().unwrap() {
            self.put(asset, &tree);
        }
        copy(&root().join(text(&table["license-file"][0])), &tree.join("usr/share/doc/signet/copyright"), 0o644);
        let debian = tree.join("DEBIAN");
        for script in files(&root().join(text(&table["maintainer-scripts"])), "*") {
            copy(&script, &debian.join(script.file_name().unwrap()), 0o755);
        }
        let conffiles = table["conf-files"].as_array().unwrap().iter().map(|file| format!("{}\n", text(file)));
        write(&debian.join("conffiles"), &conffiles.collect::<String>());
        write(&debian.join("control"), &self.control(package, table, version));
        let built = self.0.path().join(format!("signet_{version}.deb"));
        let [tree, file] = [&tree, &built].map(|path| path.to_str().unwrap());
        self.run(&["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, file]);
        built
    }

    fn control(&self, package: &Table, table: &Table, version: &str) -> String {
        let architecture = self.run(&["dpkg", "--print-architecture"]);
        let more = text(&table["extended-description"]).lines().map(|line| format!(" {line}\n")).collect::<String>();
        format!(
            "Package: {}\nVersion: {version}\nArchitecture: {}\nMaintainer: {}\nSection: {}\nPriority: {}\nDepends: {}\n\
             Suggests: {}\nDescription: {}\n{more}",
            text(&package["name"]),
            architecture.trim(),
            text(&table["maintainer"]),
            text(&table["section"]),
            text(&table["priority"]),
            text(&table["depends"]),
            text(&table["suggests"]),
            text(&package["description"]),
        )
    }

    /// Copies the files of `[source, target, mode]`; a target that ends with `/` is a folder.
    fn put(&self, asset: &Value, tree: &Path) {
        let [source, target, mode] = [0, 1, 2].map(|n| text(&asset[n]));
        let source = match source.strip_prefix(STAGED) {
            Some(made) => self.0.path().join(made),
            None => root().join(source),
        };
        let found = files(source.parent().unwrap(), source.file_name().unwrap().to_str().unwrap());
        assert!(!found.is_empty(), "{}: no such file", source.display());
        for file in found {
            let target = if target.ends_with('/') {
                tree.join(target).join(file.file_name().unwrap())
            } else {
                tree.join(target)
            };
            copy(&file, &target, u32::from_str_radix(mode, 8).unwrap());
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn files(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let (begin, end) = pattern.split_once('*').unwrap_or((pattern, ""));
    let matches = |name: &str| {
        if pattern.contains('*') { name.starts_with(begin) && name.ends_with(end) } else { name == pattern }
    };
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.is_file() && matches(path.file_name().unwrap().to_str().unwrap())).collect()
}

fn copy(from: &Path, to: &Path, mode: u32) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::copy(from, to).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn write(to: &Path, text: &str) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::write(to, text).unwrap();
}
