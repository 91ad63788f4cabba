//! Numbers of one cluster: address ranges that no other cluster of the testbed has, and ports on loopback.

use std::{
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    ops::Range,
    path::PathBuf,
    sync::Mutex,
};

/// Most clusters in one testbed: their address ranges are numbered.
pub(crate) const MAX_CLUSTERS: usize = 16;

/// Ports that one cluster gets; what each is for is [`Port`].
const BLOCK: u16 = 8;

/// Ports where blocks are looked for when the system's ephemeral range leaves less.
const FALLBACK: Range<u16> = 10_000..32_000;

/// Why there are no ports.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The directory of the locks cannot be used.
    #[error("cannot lock ports in {}: {source}", path.display())]
    Lock {
        /// Directory or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Every block is taken.
    #[error("no {BLOCK} free ports in a row between {} and {}; end what listens there", range.start, range.end)]
    Exhausted {
        /// Where was looked.
        range: Range<u16>,
    },
}

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
}

/// A block of ports on 127.0.0.1 that no other testbed on this machine uses while this value lives.
///
/// They are outside the range that the system gives to outgoing connections: a client that tries a dead port of that
/// range over and over can end up connected to itself, and then the server cannot come back.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    /// An advisory lock, which ends with the process.
    _lock: File,
}

impl Ports {
    /// Claims a block whose ports are all free.
    pub(crate) fn claim() -> Result<Self, PortError> {
        /// Where the next search of this process begins, counted in blocks.
        static NEXT: Mutex<u32> = Mutex::new(0);
        let range = range();
        let blocks = u32::from((range.end - range.start) / BLOCK);
        let directory = std::env::temp_dir().join("tombolo-testbed-ports");
        let in_path = |path: PathBuf| move |source| PortError::Lock { path, source };
        fs::create_dir_all(&directory).map_err(in_path(directory.clone()))?;
        let mut next = NEXT
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for _ in 0..blocks {
            let block = next.wrapping_add(std::process::id() * 7) % blocks;
            *next += 1;
            let first = range.start + u16::try_from(block).unwrap_or(0) * BLOCK;
            let path = directory.join(first.to_string());
            let lock = File::options().create(true).append(true).open(&path);
            let lock = lock.map_err(in_path(path))?;
            if lock.try_lock().is_ok() && (first..first + BLOCK).all(is_free) {
                return Ok(Self { first, _lock: lock });
            }
        }
        Err(PortError::Exhausted { range })
    }

    /// Address of one of them.
    pub(crate) fn address(&self, port: Port) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.first + port as u16).into()
    }

    /// URL of one of them, without TLS.
    pub(crate) fn url(&self, port: Port) -> String {
        format!("http://{}", self.address(port))
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
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

    /// Pod ranges for `--cluster-cidr`.
    pub(crate) fn pods(self) -> String {
        let n = 128 + self.index;
        format!("10.{n}.0.0/16,fd00:{n}::/104")
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

        assert!(
            a.first.abs_diff(b.first) >= BLOCK,
            "{} and {}",
            a.first,
            b.first
        );
    }

    #[test]
    fn a_taken_port_is_not_claimed() {
        let ports = Ports::claim().unwrap();
        let _taken = TcpListener::bind(ports.address(Port::OperatorHealth)).unwrap();
        let first = ports.first;
        drop(ports);

        let next = Ports::claim().unwrap();

        assert_ne!(next.first, first);
    }
}
