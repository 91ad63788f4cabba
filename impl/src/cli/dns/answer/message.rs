//! One question and the head of its answer, as DNS messages.

use std::{fmt, io};

use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// How a question was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(pub(super) RCODE);

impl fmt::Display for Code {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "these three are known by name, the others by the library's"
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RCODE::NoError => f.write_str("NOERROR"),
            RCODE::NameError => f.write_str("NXDOMAIN"),
            RCODE::ServerFailure => f.write_str("SERVFAIL"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// How the question was taken.
    pub(super) code: Code,
    /// Records in it.
    pub(super) answers: usize,
}

/// A question.
pub(super) fn question(id: u16, name: &str, kind: TYPE) -> io::Result<Vec<u8>> {
    let name = Name::new(name).map_err(bad)?;
    let kind = QTYPE::TYPE(kind);
    let question = Question::new(name, kind, QCLASS::CLASS(CLASS::IN), false);
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(question);
    packet.build_bytes_vec().map_err(bad)
}

/// The head of the answer to a question.
pub(super) fn read(message: &[u8], id: u16) -> io::Result<Answer> {
    let packet = Packet::parse(message).map_err(bad)?;
    if packet.id() != id || !packet.has_flags(PacketFlag::RESPONSE) {
        return Err(io::Error::other("the answer is to another question"));
    }
    Ok(Answer {
        code: Code(packet.rcode()),
        answers: packet.answers.len(),
    })
}

fn bad(error: simple_dns::SimpleDnsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_to_the_question_that_was_asked() {
        let asked = question(7, "dns-version.clusterset.local", TYPE::TXT).unwrap();
        let mut reply = Packet::parse(&asked).unwrap().into_reply();
        *reply.rcode_mut() = RCODE::NameError;
        let reply = reply.build_bytes_vec().unwrap();

        let answer = read(&reply, 7).unwrap();

        assert_eq!(
            (answer.code.to_string(), answer.answers),
            ("NXDOMAIN".to_owned(), 0)
        );
        assert!(read(&reply, 8).is_err());
        assert!(read(&asked, 7).is_err());
        assert!(read(&reply[..7], 7).is_err());
    }
}
