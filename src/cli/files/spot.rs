//! Where a file stands: its folder, held open, and its name there.
//!
//! A command of root works in folders of others. Whoever owns one may put a link there, or another folder in the place
//! of one, at any moment. So the way is gone step by step, what was looked at is held open, and the file is made and
//! renamed by its name in that folder. A link on the way is followed when it belongs to root, to the caller, or to
//! whoever owns what it leads to, much as the kernel has it in folders that everybody may write to
//! (`fs.protected_symlinks`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path};

use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use signet::error::{Error, Kind, Result, io_words};

/// Most links that are followed on one way, as the kernel has it.
const MOST_LINKS: usize = 40;

/// A place for a file.
pub(super) struct Spot {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
    /// What is there.
    pub(super) found: Option<Stat>,
}

/// A step of the way.
enum Step {
    To(OsString),
    /// Here a link of this user has led to.
    Led(u32),
}

impl Spot {
    /// Goes to where a file is, or is to be. A link in its own place is followed when that is asked for.
    ///
    /// # Errors
    /// `Forbidden` for the link of somebody who owns neither this machine nor what it leads to, `Unavailable` where there
    /// is no way.
    pub(super) fn of(file: &Path, follow: bool) -> Result<Self> {
        let failed = |e: Errno| unwritable(file, e.into());
        let whole = std::path::absolute(file).map_err(|e| unwritable(file, e))?;
        let mut spot = Self { folder: top().map_err(failed)?, name: OsString::new(), found: None };
        let (mut steps, mut links) = (steps_of(&whole), 0);
        while let Some(step) = steps.pop() {
            let name = match step {
                Step::To(name) => name,
                Step::Led(user) if spot.found.is_some_and(|found| found.st_uid == user) => continue,
                Step::Led(user) => return Err(of_another(file, user)),
            };
            let is_last = !steps.iter().any(|step| matches!(step, Step::To(_)));
            let there = match fs::openat(&spot.folder, &name, PATH, Mode::empty()) {
                Ok(there) => there,
                Err(Errno::NOENT) if is_last => {
                    (spot.name, spot.found) = (name, None);
                    continue;
                }
                Err(e) => return Err(failed(e)),
            };
            let found = fs::fstat(&there).map_err(failed)?;
            if kind(&found) == FileType::Symlink && (follow || !is_last) {
                links += 1;
                if links > MOST_LINKS {
                    return Err(failed(Errno::LOOP));
                }
                if ![0, rustix::process::geteuid().as_raw()].contains(&found.st_uid) {
                    steps.push(Step::Led(found.st_uid));
                }
                let to = fs::readlinkat(&there, "", Vec::new()).map_err(failed)?;
                let to = Path::new(OsStr::from_bytes(to.to_bytes()));
                if to.is_absolute() {
                    spot.folder = top().map_err(failed)?;
                    spot.found = Some(fs::fstat(&spot.folder).map_err(failed)?);
                }
                steps.extend(steps_of(to));
                continue;
            }
            spot.found = Some(found);
            if is_last { spot.name = name } else { spot.folder = there }
        }
        Ok(spot)
    }

    /// The names in the folder.
    pub(super) fn names(&self) -> std::io::Result<Vec<OsString>> {
        let entries = fs::Dir::read_from(self.opened()?)?;
        entries
            .map(|entry| Ok(OsString::from_vec(entry.map_err(std::io::Error::from)?.file_name().to_bytes().to_vec())))
            .collect()
    }

    /// The folder, which is held open without any right; this may be read, and synced.
    pub(super) fn opened(&self) -> std::io::Result<File> {
        Ok(fs::openat(&self.folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

/// How something is looked at: it is not opened for anything, and a link is looked at itself.
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn top() -> Result<OwnedFd, Errno> {
    fs::open("/", PATH | OFlags::DIRECTORY, Mode::empty())
}

/// What is found in a place.
pub(super) fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// The steps of a way, the first one last.
fn steps_of(way: &Path) -> Vec<Step> {
    let steps = way.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(Step::To(part.as_os_str().to_owned())),
        _ => None,
    });
    steps.rev().collect()
}

/// That a file cannot be written.
pub(super) fn unwritable(file: &Path, e: std::io::Error) -> Error {
    Error::unavailable(format!("{}: cannot be written ({})", file.display(), io_words(e.kind())), e)
}

/// The folder of a file.
pub(in crate::cli) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn of_another(file: &Path, user: u32) -> Error {
    let text = format!(
        "{}: a symbolic link of user {user} leads to what is not theirs, and is not followed; name the file itself, or \
         make the link as root",
        file.display()
    );
    Error::new(Kind::Forbidden, text)
}
