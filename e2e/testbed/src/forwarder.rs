//! A TCP forwarder on loopback: one address, and behind it whatever a test puts there.
//!
//! It stands for what lies between processes in production: a Service in front of several pods, or a network that swallows
//! packets.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

use crate::dialer::Dialer;

/// What becomes of connections. Each has the number of the era in which it was accepted.
#[derive(Clone, Copy, Debug)]
struct Rule {
    era: u64,
    target: SocketAddr,
    /// Older connections are closed.
    closed_before: u64,
    /// Older connections stay open, and nothing passes any more.
    silent_before: u64,
}

/// A forwarder. Dropping it closes its connections.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    rule: watch::Sender<Rule>,
    accepting: JoinHandle<()>,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
        self.close();
    }
}

impl Forwarder {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_from(Dialer::Here, target).await
    }

    /// The same for a target in the network that this dialer connects from.
    pub(crate) async fn start_from(dialer: Dialer, target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let first = Rule {
            era: 1,
            target,
            closed_before: 0,
            silent_before: 0,
        };
        let rule = watch::Sender::new(first);
        let rules = rule.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Both ends pass small packets on at once: else an answer waits for an acknowledgement, 40 ms at a time.
                let _ = client.set_nodelay(true);
                tokio::spawn(forward(client, dialer.clone(), rules.clone()));
            }
        });
        Ok(Self {
            address,
            rule,
            accepting,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards new connections to another target, and closes the old ones.
    pub fn switch(&self, target: SocketAddr) {
        self.rule.send_modify(|rule| {
            rule.target = target;
            rule.era += 1;
            rule.closed_before = rule.era;
        });
    }

    /// Lets nothing pass any more on the connections that there are: they stay open, and nobody is told. New ones work.
    pub fn swallow(&self) {
        self.rule.send_modify(|rule| {
            rule.era += 1;
            rule.silent_before = rule.era;
        });
    }

    fn close(&self) {
        self.rule.send_modify(|rule| {
            rule.era += 1;
            rule.closed_before = rule.era;
        });
    }
}

async fn forward(mut client: TcpStream, dialer: Dialer, mut rules: watch::Receiver<Rule>) {
    let Rule { era, target, .. } = *rules.borrow();
    let mut passing = Box::pin(async move {
        if let Ok(mut server) = dialer.connect(target).await {
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    });
    tokio::select! {
        () = &mut passing => return,
        _ = rules.wait_for(|rule| era < rule.closed_before || era < rule.silent_before) => {}
    }
    // A silent connection keeps both its ends open, and moves nothing.
    let _ = rules.wait_for(|rule| era < rule.closed_before).await;
    drop(passing);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Requests of two packets each: many more than TCP acknowledges at once in the beginning.
    const ROUNDS: u32 = 50;

    /// A server that answers each byte with its own name.
    async fn named(name: u8) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    while stream.read_u8().await.is_ok() && stream.write_u8(name).await.is_ok() {}
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream) -> io::Result<u8> {
        stream.write_u8(b'?').await?;
        tokio::time::timeout(Duration::from_secs(5), stream.read_u8()).await?
    }

    /// Sends a byte, and another one when the first has come through.
    async fn two_packets(from: &mut TcpStream, to: &mut TcpStream) {
        from.write_u8(1).await.unwrap();
        to.peek(&mut [0]).await.unwrap();
        from.write_u8(2).await.unwrap();
        to.read_exact(&mut [0; 2]).await.unwrap();
    }

    #[tokio::test]
    async fn small_packets_do_not_wait_for_acknowledgements() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwarder = Forwarder::start(listener.local_addr().unwrap())
            .await
            .unwrap();

        let mut near = TcpStream::connect(forwarder.address()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        let mut slow = 0;
        for _ in 0..ROUNDS {
            let begin = std::time::Instant::now();
            two_packets(&mut near, &mut far).await;
            two_packets(&mut far, &mut near).await;
            slow += u32::from(begin.elapsed() > Duration::from_millis(20));
        }

        // Those that wait do so each time; a busy machine is slow now and then.
        assert!(slow < ROUNDS / 2, "{slow} of {ROUNDS} took more than 20 ms");
    }

    #[tokio::test]
    async fn after_a_switch_old_connections_end_and_new_ones_reach_the_other_target() {
        let forwarder = Forwarder::start(named(b'a').await).await.unwrap();
        let mut old = TcpStream::connect(forwarder.address()).await.unwrap();
        assert_eq!(ask(&mut old).await.unwrap(), b'a');

        forwarder.switch(named(b'b').await);

        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(5), old.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the old connection is still open");
        let mut new = TcpStream::connect(forwarder.address()).await.unwrap();
        assert_eq!(ask(&mut new).await.unwrap(), b'b');
    }

    #[tokio::test]
    async fn a_swallowed_connection_stays_open_and_silent_and_new_ones_work() {
        let forwarder = Forwarder::start(named(b'a').await).await.unwrap();
        let mut old = TcpStream::connect(forwarder.address()).await.unwrap();
        assert_eq!(ask(&mut old).await.unwrap(), b'a');

        forwarder.swallow();

        let mut new = TcpStream::connect(forwarder.address()).await.unwrap();
        assert_eq!(ask(&mut new).await.unwrap(), b'a');
        old.write_u8(b'?').await.unwrap();
        let answer = tokio::time::timeout(Duration::from_millis(200), old.read_u8()).await;
        assert!(answer.is_err(), "{answer:?}");
    }
}
