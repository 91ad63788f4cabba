//! Numbers of one cluster: address ranges that no other cluster of the testbed has, and ports on loopback.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    ops::Range,
    sync::{Mutex, PoisonError},
};

/// Most clusters in one testbed: their address ranges are numbered.
pub(crate) const MAX_CLUSTERS: usize = 16;

/// Ports that one cluster gets; what each is for is [`Port`], and the last one is the claim.
const BLOCK: u16 = 16;

/// Ports where blocks are looked for when the system's ephemeral range leaves less.
const FALLBACK: Range<u16> = 10_000..32_000;

/// Why there are no ports.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Every block is taken.
    #[error("no {BLOCK} free ports in a row between {} and {}; end what listens there", range.start, range.end)]
    Exhausted {
        /// Where was looked.
        range: Range<u16>,
    },
}

/// First port of what has no customary one on a node.
const NODE_PORTS: u16 = 9870;

/// What listens on the ports of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Port {
    ApiServer,
    EtcdClient,
    EtcdPeer,
    MeshEtcdClient,
    MeshEtcdPeer,
    MeshHealth,
    OperatorHealth,
    SecondOperatorHealth,
    SecondMeshEtcdClient,
    SecondMeshEtcdPeer,
    SecondMeshHealth,
}

/// Where the servers of one cluster listen.
#[derive(Debug)]
pub(crate) enum Ports {
    /// On 127.0.0.1 of this machine.
    Loopback(Block),
    /// On the address of a node that has a network namespace of its own, so that the numbers are the same in each. Its
    /// clients are peers; the etcd of the API server listens on 127.0.0.1 there.
    Node(Ipv4Addr),
    /// On 127.0.0.1 beside a cluster whose API server listens elsewhere.
    Beside(Block, SocketAddr),
}

/// A block of ports on 127.0.0.1 that no other testbed on this machine uses while this value lives.
///
/// They are outside the range that the system gives to outgoing connections: a client that tries a dead port of that
/// range over and over can end up connected to itself, and then the server cannot come back.
#[derive(Debug)]
pub(crate) struct Block {
    first: u16,
    /// Listens on the last port of the block, where nobody connects: whoever else wants the block finds it taken, also
    /// while none of the servers runs. It ends with the process.
    _claim: TcpListener,
}

/// Ports on 127.0.0.1 for servers that a test starts itself. Nobody else who claims ports is given them while this value lives,
/// also while no server listens there, and no outgoing connection either: they are a block like those of clusters.
#[derive(Debug)]
pub struct ClaimedPorts(Block);

impl ClaimedPorts {
    /// Claims some that are all free.
    pub fn claim() -> Result<Self, PortError> {
        Block::claim().map(Self)
    }

    /// Two of them: as many as an etcd needs, for clients and for peers.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        let first = self.0.first;
        [first, first + 1].map(|port| (Ipv4Addr::LOCALHOST, port).into())
    }
}

impl Ports {
    /// Claims a block whose ports are all free.
    pub(crate) fn claim() -> Result<Self, PortError> {
        Block::claim().map(Self::Loopback)
    }

    /// The same, for what runs beside this API server.
    pub(crate) fn claim_beside(api_server: SocketAddr) -> Result<Self, PortError> {
        Ok(Self::Beside(Block::claim()?, api_server))
    }

    /// Address of one of them.
    pub(crate) fn address(&self, port: Port) -> SocketAddr {
        match (self, port) {
            (Self::Beside(_, api_server), Port::ApiServer) => *api_server,
            (Self::Loopback(block) | Self::Beside(block, _), port) => {
                (Ipv4Addr::LOCALHOST, block.first + port as u16).into()
            }
            (Self::Node(ip), Port::ApiServer) => (*ip, 6443).into(),
            (Self::Node(_), Port::EtcdClient | Port::EtcdPeer) => {
                (Ipv4Addr::LOCALHOST, NODE_PORTS + port as u16).into()
            }
            (Self::Node(ip), Port::MeshEtcdClient) => (*ip, 2379).into(),
            (Self::Node(ip), port) => (*ip, NODE_PORTS + port as u16).into(),
        }
    }

    /// URL of one of them, without TLS.
    pub(crate) fn url(&self, port: Port) -> String {
        format!("http://{}", self.address(port))
    }
}

impl Block {
    fn claim() -> Result<Self, PortError> {
        /// Blocks that this process has tried.
        static TRIED: Mutex<u32> = Mutex::new(0);
        let range = range();
        let blocks = u32::from((range.end - range.start) / BLOCK);
        let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..blocks {
            // Processes begin at different blocks, so that they seldom try the same one.
            let block = std::process::id().wrapping_mul(7).wrapping_add(*tried) % blocks;
            *tried = tried.wrapping_add(1);
            let first = range.start + u16::try_from(block).unwrap_or(0) * BLOCK;
            let last = first + BLOCK - 1;
            if let Some(claim) = listen(last)
                && (first..last).all(|port| listen(port).is_some())
            {
                return Ok(Self {
                    first,
                    _claim: claim,
                });
            }
        }
        Err(PortError::Exhausted { range })
    }
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

/// The ports just below those for outgoing connections.
fn range() -> Range<u16> {
    let file = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    match file
        .split_whitespace()
        .next()
        .and_then(|low| low.parse::<u16>().ok())
    {
        Some(low) if low > FALLBACK.start + 2_000 => FALLBACK.start..low,
        Some(_) | None => FALLBACK,
    }
}

/// Address ranges of the cluster with this index (0 is the first).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    index: u8,
}

impl Network {
    pub(crate) fn new(index: usize) -> Option<Self> {
        let index = u8::try_from(index)
            .ok()
            .filter(|index| usize::from(*index) < MAX_CLUSTERS)?;
        Some(Self { index })
    }

    /// Service ranges for `--service-cluster-ip-range`, such as `10.96.0.0/16,fd00:96::/112`.
    pub(crate) fn services(self) -> String {
        let n = 96 + self.index;
        format!("10.{n}.0.0/16,fd00:{n}::/112")
    }

    /// First address of each service range: the Service `kubernetes`.
    pub(crate) fn first_services(self) -> [IpAddr; 2] {
        let n = 96 + self.index;
        let v6 = format!("fd00:{n}::1")
            .parse()
            .unwrap_or(Ipv6Addr::UNSPECIFIED);
        [Ipv4Addr::new(10, n, 0, 1).into(), v6.into()]
    }

    /// Address of the DNS Service in each service range.
    pub(crate) fn dns(self) -> [String; 2] {
        let n = 96 + self.index;
        [format!("10.{n}.0.10"), format!("fd00:{n}::a")]
    }

    /// Pod ranges for `--cluster-cidr`.
    pub(crate) fn pods(self) -> String {
        self.pod_ranges().join(",")
    }

    /// Pod range of each family.
    pub(crate) fn pod_ranges(self) -> [String; 2] {
        let n = 128 + self.index;
        [format!("10.{n}.0.0/16"), format!("fd00:{n}::/104")]
    }

    /// What the first node gets of each pod range, by the masks that kube-controller-manager is given.
    pub(crate) fn first_node_ranges(self) -> [String; 2] {
        let n = 128 + self.index;
        [format!("10.{n}.0.0/24"), format!("fd00:{n}::/112")]
    }

    /// Addresses of the node, in the network that all nodes of a testbed share.
    pub(crate) fn node(self) -> (Ipv4Addr, Ipv6Addr) {
        let n = u16::from(self.index) + 1;
        let v4 = Ipv4Addr::new(172, 30, self.index + 1, 1);
        (v4, Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, n))
    }

    /// Addresses of the pod with this number; they repeat after 65 000 pods.
    pub(crate) fn pod(self, number: u16) -> [IpAddr; 2] {
        let n = 128 + self.index;
        let [high, low] = number.wrapping_add(256).to_be_bytes();
        let v6: Ipv6Addr = format!("fd00:{n}::{number:x}")
            .parse()
            .unwrap_or(Ipv6Addr::UNSPECIFIED);
        [Ipv4Addr::new(10, n, high, low).into(), v6.into()]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clusters_share_no_address() {
        let [a, b] = [Network::new(0).unwrap(), Network::new(1).unwrap()];

        assert_eq!(a.services(), "10.96.0.0/16,fd00:96::/112");
        assert_eq!(b.services(), "10.97.0.0/16,fd00:97::/112");
        assert_eq!(
            a.pod(1).map(|ip| ip.to_string()),
            ["10.128.1.1", "fd00:128::1"]
        );
        assert_eq!(
            b.pod(1).map(|ip| ip.to_string()),
            ["10.129.1.1", "fd00:129::1"]
        );
    }

    #[test]
    fn two_claims_share_no_port() {
        let [a, b] = [Ports::claim().unwrap(), Ports::claim().unwrap()];

        let [a, b] = [first(&a), first(&b)];
        assert!(a.abs_diff(b) >= BLOCK, "{a} and {b}");
    }

    #[test]
    fn a_taken_port_is_not_claimed() {
        let ports = Ports::claim().unwrap();
        let _taken = TcpListener::bind(ports.address(Port::OperatorHealth)).unwrap();
        let taken = first(&ports);
        drop(ports);

        let next = Ports::claim().unwrap();

        assert_ne!(first(&next), taken);
    }

    #[test]
    fn the_ports_of_a_node_differ_and_only_the_etcd_of_the_api_server_is_private() {
        let all = [
            Port::ApiServer,
            Port::EtcdClient,
            Port::EtcdPeer,
            Port::MeshEtcdClient,
            Port::MeshEtcdPeer,
            Port::MeshHealth,
            Port::OperatorHealth,
            Port::SecondOperatorHealth,
            Port::SecondMeshEtcdClient,
            Port::SecondMeshEtcdPeer,
            Port::SecondMeshHealth,
        ];
        let node = Ports::Node(Network::new(1).unwrap().node().0);

        let numbers: BTreeSet<_> = all.iter().map(|port| node.address(*port).port()).collect();
        let private = all
            .iter()
            .filter(|port| node.address(**port).ip().is_loopback());

        assert_eq!(numbers.len(), all.len());
        assert_eq!(private.count(), 2);
        assert_eq!(node.address(Port::ApiServer).to_string(), "172.30.2.1:6443");
    }

    fn first(ports: &Ports) -> u16 {
        ports.address(Port::ApiServer).port()
    }
}
