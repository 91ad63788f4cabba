//! How long cases wait. Numbers only.

use std::time::Duration;

/// How long a case waits.
#[derive(Debug, Clone, Copy)]
pub struct Budgets {
    /// Until something has to be there, or gone. 20 s, as the upstream suite.
    pub appear: Duration,
    /// Until a pod runs. 60 s, as the upstream suite.
    pub start: Duration,
    /// For how long something has to stay. 5 s, as the upstream suite.
    pub stay: Duration,
    /// Longest time between two looks. Cases look at once when an object in their namespace changed.
    pub poll: Duration,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            appear: Duration::from_secs(20),
            start: Duration::from_mins(1),
            stay: Duration::from_secs(5),
            poll: Duration::from_millis(500),
        }
    }
}

impl Budgets {
    /// The same with longer waits for what has to come, for machines that do much at the same time. What has to stay has to
    /// stay as long as before.
    #[must_use]
    pub fn patient(self, factor: u32) -> Self {
        Self {
            appear: self.appear * factor,
            start: self.start * factor,
            ..self
        }
    }
}
