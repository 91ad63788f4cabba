//! For tests: a network between client and store that is slow, cuts, refuses, swallows, closes one half, or takes connections in
//! another order than they came.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{
    config::EtcdConfig,
    etcd::EtcdStore,
    testing::{Etcd, Subject},
};

/// What the network does to every connection, from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// Passes everything on.
    Good,
    /// Passes on pieces of so many bytes, with a pause after each.
    Slow(usize, Duration),
    /// Cuts a connection after so many more bytes of the server: in the middle of a frame, unless by chance.
    CutAfter(usize),
    /// Closes what is open and every new connection at once.
    Refuse,
    /// Swallows everything in both directions, closes nothing.
    Swallow,
    /// Ends the server's direction; the client's goes on.
    HalfClose,
    /// Holds new connections until there are so many, then serves the last one first.
    Reverse(usize),
}

/// The network. Connections end with it.
pub(crate) struct Proxy {
    address: std::net::SocketAddr,
    network: watch::Sender<Network>,
    target: Arc<Mutex<String>>,
    accepted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// A good network in front of this address, `HOST:PORT`.
    pub(crate) async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (network, state) = watch::channel(Network::Good);
        let target = Arc::new(Mutex::new(target.to_owned()));
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(
            listener,
            Arc::clone(&target),
            state,
            Arc::clone(&accepted),
        ));
        Self {
            address,
            network,
            target,
            accepted,
            _tasks: tasks,
        }
    }

    /// URL for clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes the network, for connections that are open and those to come.
    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }

    /// New connections go to this address.
    pub(crate) fn redirect(&self, target: &str) {
        target.clone_into(&mut self.target.lock().unwrap());
    }

    /// How many connections there were.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// A real etcd behind a network that is slow and passes everything on in pieces.
pub(crate) struct SlowEtcd {
    etcd: Etcd,
    proxy: Proxy,
}

impl Subject for SlowEtcd {
    type Store = EtcdStore;

    async fn start() -> Self {
        let etcd = Etcd::start().await;
        let proxy = Proxy::start(etcd.url().trim_start_matches("http://")).await;
        // No power of two, so that frames are cut everywhere; each piece costs a millisecond or more, so that they have to be so
        // large for a page of 16 MiB, on a busy machine too, to be through within the time that a request has.
        proxy.set(Network::Slow(63_001, Duration::from_micros(300)));
        Self { etcd, proxy }
    }

    fn store(&self) -> EtcdStore {
        EtcdStore::new(EtcdConfig::from_urls(&[self.proxy.url()]).expect("a good URL"))
    }

    async fn compact(&self) {
        self.etcd.compact().await;
    }

    async fn stop(&mut self) {
        self.etcd.stop().await;
    }

    async fn resume(&mut self) {
        self.etcd.resume().await;
    }

    async fn wipe(&mut self) {
        self.etcd.wipe().await;
    }
}

async fn accept(
    listener: TcpListener,
    target: Arc<Mutex<String>>,
    state: watch::Receiver<Network>,
    accepted: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    let mut held = Vec::new();
    while let Ok((client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::Relaxed);
        let network = *state.borrow();
        held.push(client);
        if let Network::Reverse(count) = network
            && held.len() < count
        {
            continue;
        }
        while let Some(client) = held.pop() {
            match network {
                Network::Refuse => drop(client),
                // A connection that is made while packets are swallowed stays dead.
                Network::Swallow => {
                    connections.spawn(async move {
                        let _held = client;
                        std::future::pending::<()>().await;
                    });
                }
                Network::Good
                | Network::Slow(..)
                | Network::CutAfter(_)
                | Network::HalfClose
                | Network::Reverse(_) => {
                    let target = target.lock().unwrap().clone();
                    connections.spawn(connect(client, target, state.clone()));
                    if matches!(network, Network::Reverse(_)) {
                        // So that the server sees them in the new order, too.
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            }
        }
    }
}

async fn connect(client: TcpStream, target: String, state: watch::Receiver<Network>) {
    // A server that is not there is a connection that ends at once.
    let Ok(server) = TcpStream::connect(&target).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = pass(from_client, to_server, state.clone(), false);
    let down = pass(from_server, to_client, state, true);
    tokio::pin!(up, down);
    // One direction that breaks ends both; one that is half closed leaves the other open.
    tokio::select! {
        end = &mut up => if let End::Half = end { down.await; },
        end = &mut down => if let End::Half = end { up.await; },
    }
}

/// How one direction ended.
enum End {
    /// The connection is to be closed.
    Broken,
    /// This direction is closed, the other goes on.
    Half,
}

async fn pass(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut state: watch::Receiver<Network>,
    of_server: bool,
) -> End {
    // Larger than any piece.
    let mut buffer = vec![0; 128 * 1024];
    let mut passed = 0;
    loop {
        let network = *state.borrow_and_update();
        match network {
            Network::Refuse => return End::Broken,
            Network::CutAfter(most) if of_server && passed >= most => return End::Broken,
            Network::HalfClose if of_server => {
                let _gone = to.shutdown().await;
                return End::Half;
            }
            Network::CutAfter(_)
            | Network::Good
            | Network::Slow(..)
            | Network::Swallow
            | Network::HalfClose
            | Network::Reverse(_) => {}
        }
        let most = match network {
            Network::CutAfter(most) if of_server => most - passed,
            Network::Slow(piece, _) => piece,
            Network::CutAfter(_)
            | Network::Good
            | Network::Refuse
            | Network::Swallow
            | Network::HalfClose
            | Network::Reverse(_) => buffer.len(),
        };
        let most = most.min(buffer.len());
        let count = tokio::select! {
            changed = state.changed() => {
                passed = 0;
                if changed.is_err() {
                    return End::Broken;
                }
                continue;
            }
            count = from.read(&mut buffer[..most]) => count,
        };
        let Ok(count @ 1..) = count else {
            return End::Broken;
        };
        if *state.borrow() == Network::Swallow {
            continue;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return End::Broken;
        }
        passed += count;
        if let Network::Slow(_, pause) = network {
            tokio::time::sleep(pause).await;
        }
    }
}
