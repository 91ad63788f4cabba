//! Files that are written all or, when one exists already, not at all.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::Error;

/// Mode of files with keys.
const PRIVATE: u32 = 0o600;
/// Mode of the others.
const PUBLIC: u32 = 0o644;

/// A file to be written.
pub(in crate::cli) struct File {
    /// Its name in the directory.
    pub(super) name: String,
    content: String,
    mode: u32,
}

impl File {
    /// One that anybody may read.
    pub(in crate::cli) fn public(name: &str, content: String) -> Self {
        Self {
            name: name.to_owned(),
            content,
            mode: PUBLIC,
        }
    }

    /// One that only its owner may read.
    pub(in crate::cli) fn private(name: &str, content: String) -> Self {
        Self {
            mode: PRIVATE,
            ..Self::public(name, content)
        }
    }
}

/// Writes the files, each by renaming. Without `force` nothing is written when one of them exists.
pub(in crate::cli) fn write_all(dir: &Path, files: &[File], force: bool) -> Result<()> {
    let existing = files.iter().map(|file| dir.join(&file.name));
    if let Some(file) = existing
        .into_iter()
        .find(|path| path.symlink_metadata().is_ok() && !force)
    {
        return Err(Error::Exists { file }.into());
    }
    fs::create_dir_all(dir).with_context(|| {
        let dir = dir.display();
        format!("{dir}: the directory cannot be made; check the path and its permissions")
    })?;
    for file in files {
        let path = dir.join(&file.name);
        write(dir, file).with_context(|| {
            let path = path.display();
            format!("{path}: cannot be written; check the directory's permissions and space")
        })?;
    }
    Ok(())
}

/// A path as directory and name.
pub(in crate::cli) fn split(path: &Path) -> Result<(PathBuf, String), Error> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::NoFileName {
        path: path.to_owned(),
    })?;
    let dir = path.parent().filter(|dir| *dir != Path::new(""));
    let dir = dir.unwrap_or_else(|| Path::new("."));
    Ok((dir.to_owned(), name.to_owned()))
}

fn write(dir: &Path, file: &File) -> std::io::Result<()> {
    let temporary = dir.join(format!(".{}.{}", file.name, std::process::id()));
    let _left_behind = fs::remove_file(&temporary);
    let mut open = fs::OpenOptions::new();
    let written = open
        .write(true)
        .create_new(true)
        .mode(file.mode)
        .open(&temporary)
        .and_then(|mut open| {
            open.write_all(file.content.as_bytes())?;
            open.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, dir.join(&file.name)));
    if written.is_err() {
        let _nothing_half_written = fs::remove_file(&temporary);
    }
    written
}
