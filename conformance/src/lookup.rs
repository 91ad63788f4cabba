//! Questions to a cluster's DNS, asked from a pod as its programs ask: the server of the pod's `resolv.conf`, by UDP, and by TCP
//! what does not fit. Messages are read as such; no tool's text is.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE, rdata::RData,
};

use crate::{context::Context, expect::Seen, workloads::REQUEST};

/// Zone of the ClusterSet.
pub const CLUSTERSET: &str = "clusterset.local";

/// Zone of a cluster.
pub const CLUSTER: &str = "cluster.local";

/// An SRV record, without priority and weight.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Srv {
    /// The port.
    pub port: u16,
    /// The host, lower case, without a dot at the end.
    pub target: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// How the question was taken.
    pub code: RCODE,
    /// Addresses, each once.
    pub addresses: BTreeSet<IpAddr>,
    /// SRV records. One that is there twice is in it twice.
    pub services: Vec<Srv>,
    /// TXT records.
    pub texts: Vec<String>,
    /// Records in all.
    pub answers: usize,
    /// Whether the zone's SOA is in the authority section, as it has to be without answers.
    pub soa: bool,
}

impl Lookup {
    /// No such name.
    pub fn is_no_name(&self) -> bool {
        self.code == RCODE::NameError && self.answers == 0 && self.soa
    }

    /// The name exists and has nothing of that type.
    pub fn is_no_data(&self) -> bool {
        self.code == RCODE::NoError && self.answers == 0 && self.soa
    }
}

/// The type of record that holds an address of a family.
pub fn of_family(family: &str) -> TYPE {
    if family == "IPv6" {
        TYPE::AAAA
    } else {
        TYPE::A
    }
}

/// Whether an address is of a family.
pub fn is_of(family: &str, address: &IpAddr) -> bool {
    address.is_ipv6() == (family == "IPv6")
}

impl Context {
    /// The name of the Service under test in a zone.
    pub fn domain(&self, zone: &str) -> String {
        format!("{}.{}.svc.{zone}", crate::objects::HELLO, self.namespace())
    }

    /// Asks the DNS of a cluster from its request pod.
    pub async fn lookup(&self, cluster: usize, name: &str, kind: TYPE) -> Result<Lookup, Seen> {
        let server = self.name_server(cluster).await?;
        let question = question(name, kind)?;
        let pod = (cluster, REQUEST);
        let udp = ["nc", "-u", "-w", "3", &*server, "53"];
        let message = self
            .converse(pod, &udp, &question, |got| !got.is_empty())
            .await?;
        let packet = read(&message)?;
        if !packet.has_flags(PacketFlag::TRUNCATION) {
            return Ok(summary(&packet));
        }
        let length = u16::try_from(question.len()).map_err(|error| error.to_string())?;
        let framed = [&length.to_be_bytes()[..], &question].concat();
        let tcp = ["nc", "-w", "3", &*server, "53"];
        let message = self.converse(pod, &tcp, &framed, is_whole).await?;
        Ok(summary(&read(&message[2..])?))
    }

    /// The first server in `resolv.conf`, which is what a resolver asks.
    async fn name_server(&self, cluster: usize) -> Result<String, Seen> {
        let command = ["cat", "/etc/resolv.conf"];
        let output = self
            .exec((cluster, REQUEST), &command, std::time::Duration::ZERO)
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut servers = text
            .lines()
            .filter_map(|line| line.strip_prefix("nameserver "));
        let server = servers.next().map(|it| it.trim().to_owned());
        server.ok_or_else(|| format!("/etc/resolv.conf without nameserver: {output:?}").into())
    }
}

fn question(name: &str, kind: TYPE) -> Result<Vec<u8>, Seen> {
    let bad = |error: simple_dns::SimpleDnsError| Seen::from(format!("{name}: {error}"));
    let name = Name::new(name).map_err(bad)?;
    let question = Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false);
    let mut packet = Packet::new_query(7);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(question);
    packet.build_bytes_vec().map_err(bad)
}

/// Whether a message with its length in front is there.
fn is_whole(got: &[u8]) -> bool {
    let length = got
        .first_chunk()
        .map(|it| usize::from(u16::from_be_bytes(*it)));
    length.is_some_and(|length| got.len() >= 2 + length)
}

fn read(message: &[u8]) -> Result<Packet<'_>, Seen> {
    let packet = Packet::parse(message);
    let packet = packet.map_err(|error| format!("not a DNS message: {error}"))?;
    if packet.id() == 7 && packet.has_flags(PacketFlag::RESPONSE) {
        Ok(packet)
    } else {
        Err("a DNS message that is not the answer".into())
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "there are many types of records, and cases ask for these"
)]
fn summary(packet: &Packet<'_>) -> Lookup {
    let mut lookup = Lookup {
        code: packet.rcode(),
        addresses: BTreeSet::new(),
        services: Vec::new(),
        texts: Vec::new(),
        answers: packet.answers.len(),
        soa: packet
            .name_servers
            .iter()
            .any(|it| matches!(it.rdata, RData::SOA(_))),
    };
    for record in &packet.answers {
        match &record.rdata {
            RData::A(it) => {
                lookup.addresses.insert(Ipv4Addr::from(it.address).into());
            }
            RData::AAAA(it) => {
                lookup.addresses.insert(Ipv6Addr::from(it.address).into());
            }
            RData::SRV(it) => lookup.services.push(Srv {
                port: it.port,
                target: it
                    .target
                    .to_string()
                    .trim_end_matches('.')
                    .to_ascii_lowercase(),
            }),
            RData::TXT(it) => lookup
                .texts
                .push(String::try_from(it.clone()).unwrap_or_default()),
            _ => {}
        }
    }
    lookup.services.sort();
    lookup
}

#[cfg(test)]
mod tests {
    use simple_dns::{
        ResourceRecord,
        rdata::{A, AAAA, SOA, SRV, TXT},
    };

    use super::*;

    fn reply(code: RCODE, answers: Vec<RData<'static>>, soa: bool) -> Vec<u8> {
        let asked = question("hello.a.svc.clusterset.local", TYPE::A).unwrap();
        let mut packet = Packet::parse(&asked).unwrap().into_reply();
        *packet.rcode_mut() = code;
        let name = || Name::new("hello.a.svc.clusterset.local").unwrap();
        let record = |data| ResourceRecord::new(name(), CLASS::IN, 5, data);
        packet.answers = answers.into_iter().map(record).collect();
        if soa {
            packet.name_servers.push(record(RData::SOA(SOA {
                mname: name(),
                rname: name(),
                serial: 1,
                refresh: 1,
                retry: 1,
                expire: 1,
                minimum: 5,
            })));
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn records_of_an_answer_are_told_by_type() {
        let target = Name::new("Hello.A.svc.clusterset.local").unwrap();
        let srv = SRV {
            priority: 0,
            weight: 50,
            port: 42,
            target,
        };
        let message = reply(
            RCODE::NoError,
            vec![
                RData::A(A {
                    address: 0x0a00_0001,
                }),
                RData::AAAA(AAAA { address: 1 }),
                RData::SRV(srv),
                RData::TXT(TXT::new().with_string("1.1.0").unwrap()),
            ],
            false,
        );

        let lookup = summary(&read(&message).unwrap());

        let expected: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(
            lookup.addresses.iter().copied().collect::<Vec<_>>(),
            expected
        );
        let target = "hello.a.svc.clusterset.local".to_owned();
        assert_eq!(lookup.services, [Srv { port: 42, target }]);
        assert_eq!(
            (lookup.texts, lookup.answers),
            (vec!["1.1.0".to_owned()], 4)
        );
    }

    #[test]
    fn no_name_and_no_data_need_the_soa_and_are_not_failures() {
        let looked = |code, soa| summary(&read(&reply(code, Vec::new(), soa)).unwrap());

        assert!(looked(RCODE::NameError, true).is_no_name());
        assert!(!looked(RCODE::NameError, false).is_no_name());
        assert!(!looked(RCODE::ServerFailure, true).is_no_name());
        assert!(looked(RCODE::NoError, true).is_no_data());
        assert!(!looked(RCODE::NameError, true).is_no_data());
    }

    #[test]
    fn a_question_is_not_an_answer() {
        assert!(read(&question("a", TYPE::A).unwrap()).is_err());
        assert!(read(b"nonsense").is_err());
    }

    #[test]
    fn a_message_by_tcp_is_whole_when_its_length_is_there() {
        assert!(!is_whole(&[]) && !is_whole(&[0]) && !is_whole(&[0, 2, 1]));
        assert!(is_whole(&[0, 2, 1, 1]));
    }
}
