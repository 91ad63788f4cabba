//! Names of which something cannot be published as it is, and why. What was published of them before stays. Synchronous.

use std::collections::BTreeMap;

use super::records::Error;
use crate::status::answer;

/// The names, with the first reason of each; at most as many as there are names in the cluster.
#[derive(Debug, Default)]
pub(super) struct LeftOut(BTreeMap<String, String>);

impl LeftOut {
    /// Notes what was left out of a name when it was looked at last; nothing, when all of it is published.
    pub(super) fn note(&mut self, suffix: &str, skipped: &[Error]) {
        match skipped.first() {
            Some(error) => self.0.insert(suffix.to_owned(), error.to_string()),
            None => self.0.remove(suffix),
        };
    }

    /// For those who ask.
    pub(super) fn look(&self) -> answer::LeftOut {
        answer::LeftOut {
            count: u64::try_from(self.0.len()).unwrap_or(u64::MAX),
            first: self.0.values().next().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_large(name: &str) -> Error {
        Error::TooLarge {
            record: "Service",
            name: name.to_owned(),
            size: 2_000_000,
        }
    }

    #[test]
    fn a_name_counts_until_all_of_it_can_be_published() {
        let mut left_out = LeftOut::default();

        left_out.note("shop/web", &[too_large("shop/web")]);
        left_out.note("shop/cart", &[too_large("shop/cart"), too_large("again")]);
        let both = left_out.look();
        left_out.note("shop/cart", &[]);
        left_out.note("shop/other", &[]);
        let one = left_out.look();

        assert_eq!((both.count, one.count), (2, 1));
        assert!(both.first.unwrap().contains("shop/cart"));
        assert!(one.first.unwrap().contains("shop/web"));
    }
}
