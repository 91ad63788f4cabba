//! How many entries a page of a list has: as many as keep its bytes within bounds.
//!
//! etcd limits a page by the number of its entries alone. So a page that turns out too large is asked for again with fewer, and
//! the next page gets as many as would fit if its entries were as large as those of the last.

/// Most entries of one page.
pub const PAGE_ENTRIES: usize = 250;

/// Most bytes of keys and values of one page, and largest answer that is taken: 16 MiB, ten times the largest value that etcd
/// takes by default. A page is in memory about three times: as received, decoded, and as entries.
pub const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of keys and values that a page should have: 4 MiB.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// How many times fewer entries are asked for after a page that was too large.
const SHRINK: usize = 4;

/// How many entries a page is asked for; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageLimit(usize);

impl PageLimit {
    /// That of the first page: nothing is known of the entries.
    pub(super) const FIRST: Self = Self(PAGE_ENTRIES);

    /// The number of entries.
    pub(super) fn get(self) -> usize {
        self.0
    }

    /// That of another attempt, after a page was larger than [`PAGE_BYTES_MAX`]; none when it was one entry.
    pub(super) fn smaller(self) -> Option<Self> {
        (self.0 > 1).then_some(Self((self.0 / SHRINK).max(1)))
    }

    /// That of the page after one with entries of these sizes in bytes. It grows to twice as many at most.
    pub(super) fn after(self, sizes: impl ExactSizeIterator<Item = usize>) -> Self {
        let count = sizes.len();
        let fit = count * PAGE_BYTES / sizes.sum::<usize>().max(1);
        Self(fit.clamp(1, PAGE_ENTRIES.min(self.0 * 2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: usize, bytes: usize) -> impl ExactSizeIterator<Item = usize> {
        std::iter::repeat_n(bytes, count)
    }

    #[test]
    fn a_page_of_large_entries_makes_the_next_smaller_and_small_ones_let_it_grow_again() {
        let large = PageLimit::FIRST.after(entries(250, 64 * 1024));
        let larger = large.after(entries(64, 8 * 1024 * 1024));
        let again = larger.after(entries(1, 100));

        assert_eq!((large.get(), larger.get(), again.get()), (64, 1, 2));
        assert_eq!(PageLimit::FIRST.after(entries(250, 100)), PageLimit::FIRST);
    }

    #[test]
    fn attempts_end_with_a_single_entry() {
        let attempts = std::iter::successors(Some(PageLimit::FIRST), |limit| limit.smaller());

        let limits: Vec<_> = attempts.map(PageLimit::get).collect();
        assert_eq!(limits, [250, 62, 15, 3, 1]);
    }
}
