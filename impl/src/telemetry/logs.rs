//! Structured logs on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use thiserror::Error;
use tracing_subscriber::{EnvFilter, filter::ParseError};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line of text per event.
    Text,
    /// One JSON object per event.
    Json,
}

/// Logs could not be set up.
#[derive(Debug, Error)]
pub enum Error {
    /// The filter is not in the syntax of `tracing-subscriber`.
    #[error(
        "--log-level {filter:?}: {source}; expected a level (error, warn, info, debug, trace) or directives such as `info,tombolo::mesh=debug`"
    )]
    Filter {
        /// The text that was refused.
        filter: String,
        /// Why.
        #[source]
        source: ParseError,
    },
}

/// Starts logging to standard error. Call once per process.
pub fn install(format: Format, filter: &str) -> Result<(), Error> {
    let parsed = EnvFilter::try_new(filter).map_err(|source| Error::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        .with_ansi(colour);
    match format {
        Format::Text => builder.init(),
        Format::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
