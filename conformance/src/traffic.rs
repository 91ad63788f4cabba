//! Packets from the request pods, and which server answered.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use crate::{
    case::{Failure, Outcome},
    context::Context,
    expect::Seen,
    workloads::{REQUEST, Server},
};

/// How long a connection attempt, or an answer by UDP, may take: as upstream.
const ATTEMPT: Duration = Duration::from_secs(2);

/// How often a case asks in a row, as upstream.
pub const IN_A_ROW: usize = 10;

/// TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Whom to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// An address or a name.
    pub host: String,
    /// Over IPv6. Without, IPv4.
    pub v6: bool,
    /// The port.
    pub port: u16,
    /// By which protocol.
    pub protocol: Protocol,
}

impl Target {
    /// A port by TCP, over the family of an address, and over IPv4 for a name.
    pub fn tcp(host: impl ToString, port: u16) -> Self {
        let host = host.to_string();
        Self {
            v6: host.contains(':'),
            host,
            port,
            protocol: Protocol::Tcp,
        }
    }

    /// The same of a name over a family.
    pub fn over(self, family: &str) -> Self {
        Self {
            v6: family == "IPv6",
            ..self
        }
    }

    /// A port by UDP.
    pub fn udp(host: impl ToString, port: u16) -> Self {
        Self {
            protocol: Protocol::Udp,
            ..Self::tcp(host, port)
        }
    }
}

/// What a server says of itself: the port at which it was asked, and its first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The port of the pod.
    pub port: u16,
    /// The pod.
    pub pod: IpAddr,
}

impl Answer {
    fn read(line: &str) -> Result<Self, Seen> {
        let foreign = || Seen::from(format!("an answer that is no server's: {line:?}"));
        let (port, pod) = line.split_once(" pod ip ").ok_or_else(foreign)?;
        Ok(Self {
            port: port.parse().map_err(|_| foreign())?,
            pod: pod.trim().parse().map_err(|_| foreign())?,
        })
    }
}

/// What those servers answer at a port.
pub fn answers(servers: &[Server], port: u16) -> BTreeSet<Answer> {
    let first = servers.iter().filter_map(|it| it.addresses.first());
    first.map(|&pod| Answer { port, pod }).collect()
}

impl Context {
    /// Asks so many times, one after the other; gives the answers that came. No answer to one is not an error, but that the
    /// command could not be run is.
    pub async fn ask(
        &self,
        cluster: usize,
        target: &Target,
        times: usize,
    ) -> Result<Vec<Answer>, Seen> {
        let flag = match target.protocol {
            Protocol::Tcp => "",
            // One packet is the answer; more are not waited for.
            Protocol::Udp => "-u -W 1",
        };
        let wait = ATTEMPT.as_secs();
        let family = if target.v6 { "-6" } else { "-4" };
        let Target { host, port, .. } = target;
        let script = format!(
            "i=0; while [ $i -lt {times} ]; do echo hi | nc {flag} {family} -w {wait} {host} {port}; i=$((i+1)); done; echo end"
        );
        let takes = ATTEMPT * u32::try_from(times).unwrap_or(u32::MAX);
        let command = ["/bin/sh", "-c", &script];
        let output = self.exec((cluster, REQUEST), &command, takes).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answers = text.strip_suffix("end\n");
        let answers = answers.ok_or_else(|| format!("the command did not end: {output:?}"))?;
        answers.lines().map(Answer::read).collect()
    }

    /// Waits until these servers, and no others, answer, each at least once, in a row without silence.
    pub async fn answered_by(
        &self,
        step: &'static str,
        cluster: usize,
        target: &Target,
        wanted: &BTreeSet<Answer>,
    ) -> Outcome {
        let times = IN_A_ROW.max(6 * wanted.len());
        let expected = format!(
            "{times} answers in a row from {target:?}, by each of {wanted:?} and nobody else"
        );
        self.until(step, cluster, &expected, || async move {
            let answers = self.ask(cluster, target, times).await?;
            let by: BTreeSet<_> = answers.iter().copied().collect();
            if answers.len() == times && by == *wanted {
                return Ok(());
            }
            Err(format!("{} answers, by {by:?}", answers.len()).into())
        })
        .await
    }

    /// Asks so many times and fails when there is an answer. What cannot be asked is asked again, as nothing is known then;
    /// that it never can says nothing about the implementation.
    pub async fn silent(
        &self,
        step: &'static str,
        cluster: usize,
        target: &Target,
        times: usize,
    ) -> Result<(), Failure> {
        let asked = format!("a command that asks {target:?} {times} times");
        let answers = self.started(step, cluster, &asked, || self.ask(cluster, target, times));
        let answers = answers.await?;
        if answers.is_empty() {
            return Ok(());
        }
        let expected = format!("no answer from {target:?}, {times} times");
        Err(self.failure(step, cluster, expected, format!("{answers:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_its_port_and_its_pod() {
        let answer = Answer::read("42 pod ip fd00::1").unwrap();

        assert_eq!(
            (answer.port, answer.pod.to_string()),
            (42, "fd00::1".to_owned())
        );
        for other in [
            "",
            "pod ip 10.0.0.1",
            "42 pod ip ",
            "nc: timed out",
            "x pod ip 10.0.0.1",
        ] {
            assert!(Answer::read(other).is_err(), "{other}");
        }
    }

    #[test]
    fn servers_answer_by_their_first_address() {
        let addresses = vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let server = Server {
            name: "a".to_owned(),
            addresses,
        };

        let answers: Vec<_> = answers(&[server], 43).into_iter().collect();

        let pod = "10.0.0.1".parse().unwrap();
        assert_eq!(answers, [Answer { port: 43, pod }]);
    }
}
