//! `tombolo certs`: the certificates of a mesh etcd and its clients, with Cilium's names; and what is wrong with some that exist.
//!
//! Private keys are written to files of mode 0600 and shown nowhere but in `-o secrets`, which refuses a terminal. Nothing is
//! overwritten without `--force`.

mod args;
mod authority;
mod client;
mod error;
mod files;
mod make;
mod pkcs8;
mod secrets;
mod show;

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use jiff::Timestamp;

pub use self::{
    args::{BundleArgs, Certs, MakeArgs, MakeOutput, ShowArgs},
    error::Error,
};
pub(super) use self::{
    authority::pem,
    client::sign_client,
    files::{File, split, write_all},
};
use crate::certificate::Certificate;

/// What `--help` says beyond the flags.
pub(super) const HELP: &str = "\
Examples:
  tombolo certs make certs/paris --cluster-name paris --peer rome
  tombolo certs make certs/rome --cluster-name rome --ca-cert certs/paris/ca.crt --ca-key certs/paris/ca.key
  tombolo certs make certs/rome --cluster-name rome -o secrets | kubectl apply -f -
  tombolo certs bundle old/ca.crt new/ca.crt --into ca.crt
  tombolo certs show certs/paris

Exit codes:
  0  done; for show: all certificates can be used
  1  failed; for show: a certificate cannot be used, and why is said
  2  bad input: a flag, a file";

/// Carries out what the user asked for.
pub(super) fn run(command: &Certs) -> Result<()> {
    match command {
        Certs::Make(args) => run_make(args, io::stdout().is_terminal()),
        Certs::Bundle(args) => bundle(args),
        Certs::Show(args) => {
            let (text, bad) = show::report(&args.dir, Timestamp::now())?;
            print(&text)?;
            if bad.is_empty() {
                return Ok(());
            }
            Err(bad.into())
        }
    }
}

fn run_make(args: &MakeArgs, terminal: bool) -> Result<()> {
    if args.output == MakeOutput::Secrets && terminal {
        return Err(Error::Terminal.into());
    }
    let made = make::make(args, Timestamp::now())?;
    files::write_all(&args.dir, &made.files, args.force)?;
    match args.output {
        MakeOutput::Files => print(&make::summary(&args.dir, &made)),
        MakeOutput::Secrets => print(&secrets::render(args, &made)?),
    }
}

/// Writes the authorities of several files into one, each once.
fn bundle(args: &BundleArgs) -> Result<()> {
    let mut all: Vec<Certificate> = Vec::new();
    for file in &args.files {
        for certificate in authority::read_authorities("FILE", file)? {
            if !all.contains(&certificate) {
                all.push(certificate);
            }
        }
    }
    let (dir, name) = files::split(&args.into)?;
    let file = files::File::public(&name, authority::pem(&all));
    files::write_all(&dir, &[file], args.force)?;
    print(&format!(
        "{}: {} authorities\n",
        args.into.display(),
        all.len()
    ))
}

fn print(text: &str) -> Result<()> {
    io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};

    #[test]
    fn keys_are_not_shown_on_a_terminal_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paris").display().to_string();
        let flags = ["tombolo", "certs", "make", &path, "--cluster-name", "paris"];
        let cli = Cli::try_parse_from(flags.into_iter().chain(["-o", "secrets"])).unwrap();
        let Command::Certs(Certs::Make(args)) = cli.command else {
            panic!("another command");
        };

        let error = run_make(&args, true).unwrap_err();

        assert!(
            matches!(error.downcast_ref(), Some(Error::Terminal)),
            "{error}"
        );
        assert!(!dir.path().join("paris").exists());
    }
}
