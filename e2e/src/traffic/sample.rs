//! One request, and what many of them come to. Pure.

use std::{collections::BTreeSet, time::Duration};

/// Time since the machine was started, as `/proc/uptime` says it, in pods as outside.
pub type Uptime = Duration;

/// Time after which TCP sends the first packet of a connection again (RFC 6298 §2.1).
pub const RETRANSMISSION: Duration = Duration::from_secs(1);

/// One request of a client: a new connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When it was begun.
    pub begin: Uptime,
    /// When it ended.
    pub end: Uptime,
    /// Address that was asked.
    pub host: String,
    /// Exit code of the client's program.
    pub code: i32,
    /// Name of the pod that answered; else what the program wrote.
    pub answer: String,
}

impl Sample {
    /// Reads a line that a client wrote: `BEGIN END HOST CODE ANSWER`.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let begin = uptime(words.next()?)?;
        let end = uptime(words.next()?)?;
        let host = words.next()?.to_owned();
        let code = words.next()?.parse().ok()?;
        let answer = words.next().unwrap_or_default().trim().to_owned();
        Some(Self {
            begin,
            end,
            host,
            code,
            answer,
        })
    }

    /// Reads all lines that are whole.
    pub fn parse_all(text: &str) -> Vec<Self> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(Self::parse).collect()
    }

    /// Whether no pod answered.
    pub fn failed(&self) -> bool {
        self.code != 0 || self.answer.is_empty()
    }

    /// Whether it took as long as when its first packet was lost: TCP sends that again after [`RETRANSMISSION`].
    pub fn lost_packets(&self) -> bool {
        self.end.saturating_sub(self.begin) >= RETRANSMISSION
    }
}

/// Reads the first word of `/proc/uptime`: seconds with two decimals.
pub fn uptime(word: &str) -> Option<Uptime> {
    let seconds: f64 = word.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The requests that were begun at or after a time.
pub fn since(samples: &[Sample], begin: Uptime) -> &[Sample] {
    // Each family is asked by a loop of its own, so lines are in order of their ends only.
    let first = samples.iter().position(|it| it.begin >= begin);
    first.map_or(&[], |first| &samples[first..])
}

/// Those that no pod answered.
pub fn failures(samples: &[Sample]) -> Vec<&Sample> {
    samples.iter().filter(|it| it.failed()).collect()
}

/// When a pod answered last.
pub fn last_answer(samples: &[Sample], pod: &str) -> Option<Uptime> {
    let own = samples.iter().filter(|it| it.answer == pod);
    own.map(|it| it.end).max()
}

/// The pods that answered.
pub fn answered(samples: &[Sample]) -> BTreeSet<&str> {
    let answers = samples.iter().filter(|it| !it.failed());
    answers.map(|it| it.answer.as_str()).collect()
}

/// How long the slowest of those that were answered took; zero when there are none.
pub fn slowest(samples: &[Sample]) -> Duration {
    let answers = samples.iter().filter(|it| !it.failed());
    let times = answers.map(|it| it.end.saturating_sub(it.begin));
    times.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "10.00 10.02 10.0.0.1 0 web-a\n\
                       10.25 10.26 fd00::1 0 web-b\n\
                       10.50 13.51 10.0.0.1 1 nc: timed out\n\
                       11.00 11.01 fd00::1 0 \n\
                       14.00 14.01 10.0.0.1 0 web-a\n\
                       14.20 14.2";

    #[test]
    fn whole_lines_are_requests() {
        let samples = Sample::parse_all(LOG);

        assert_eq!(samples.len(), 5);
        assert_eq!(Some(samples[0].end), uptime("10.02"));
        assert_eq!(samples[2].answer, "nc: timed out");
        assert_eq!(samples[2].code, 1);
        assert!(Sample::parse_all("").is_empty());
    }

    #[test]
    fn a_request_without_an_answer_has_failed_whatever_the_exit_code() {
        let samples = Sample::parse_all(LOG);

        let failed: Vec<_> = failures(&samples).iter().map(|it| it.begin).collect();

        assert_eq!(failed, [10.5, 11.0].map(Duration::from_secs_f64));
        let lost: Vec<_> = samples.iter().map(Sample::lost_packets).collect();
        assert_eq!(lost, [false, false, true, false, false]);
        assert_eq!(answered(&samples), ["web-a", "web-b"].into());
        assert_eq!(slowest(&samples), Duration::from_millis(20));
    }

    #[test]
    fn what_was_begun_before_does_not_count() {
        let samples = Sample::parse_all(LOG);

        let later = since(&samples, Duration::from_secs(11));

        assert_eq!(later.len(), 2);
        assert_eq!(last_answer(later, "web-a"), uptime("14.01"));
        assert_eq!(last_answer(later, "web-b"), None);
        assert!(since(&samples, Duration::from_secs(20)).is_empty());
    }
}
