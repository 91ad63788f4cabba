//! The suite's program, which its user has built.

use std::{
    ffi::OsString,
    fmt,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Environment variable that names it.
pub const VARIABLE: &str = "CONFORMANCE_TEST";

/// Where the suite is.
const WHERE: &str = "the suite is in the folder conformance/ of https://github.com/kubernetes-sigs/mcs-api; build its test \
                     program there, as that project describes, and name it";

/// Why there is no program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// Nothing was named.
    Unnamed,
    /// There is no such file.
    NoFile(PathBuf),
    /// It cannot be run.
    NotExecutable(PathBuf),
}

impl std::error::Error for Missing {}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed => write!(f, "{VARIABLE} names no program; {WHERE}: {VARIABLE}=PATH"),
            Self::NoFile(path) => {
                write!(f, "{VARIABLE}={}: no such file; {WHERE}", path.display())
            }
            Self::NotExecutable(path) => write!(
                f,
                "{VARIABLE}={}: cannot be executed; set its mode (chmod +x), or name the compiled program",
                path.display()
            ),
        }
    }
}

/// The program that a value of the variable names, as an absolute path.
pub fn find(value: Option<OsString>) -> Result<PathBuf, Missing> {
    let value = value.filter(|it| !it.is_empty()).ok_or(Missing::Unnamed)?;
    let path = Path::new(&value);
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let Ok(found) = absolute.metadata() else {
        return Err(Missing::NoFile(absolute));
    };
    if found.is_file() && found.permissions().mode() & 0o111 != 0 {
        Ok(absolute)
    } else {
        Err(Missing::NotExecutable(absolute))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_next_step() {
        let directory = tempfile::tempdir().unwrap();
        let (gone, file) = (directory.path().join("gone"), directory.path().join("file"));
        fs::write(&file, "").unwrap();

        let errors = [
            find(None),
            find(Some(OsString::new())),
            find(Some(gone.into())),
            find(Some(file.into())),
            find(Some(directory.path().into())),
        ]
        .map(|found| found.unwrap_err().to_string());

        for error in &errors[..3] {
            assert!(error.contains("kubernetes-sigs/mcs-api"), "{error}");
        }
        assert!(errors[2].contains("gone: no such file"), "{}", errors[2]);
        assert!(errors[3].contains("chmod +x"), "{}", errors[3]);
        assert!(errors[4].contains("cannot be executed"), "{}", errors[4]);
    }

    #[test]
    fn a_relative_path_is_one_of_the_current_directory() {
        let found = find(Some("Cargo.toml".into())).unwrap_err();

        let here = std::env::current_dir().unwrap().join("Cargo.toml");
        assert_eq!(found, Missing::NotExecutable(here));
    }
}
