//! An address of this machine at which API servers reach what a test runs: they proxy to nothing on loopback.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// An address of this machine that is not on loopback: API servers proxy to no other. None when the machine has none.
pub fn own_address() -> Option<IpAddr> {
    // Nothing is sent: the system only chooses the address that it would send from, if there is a route.
    let of_route = || {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.254:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let usable = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
    of_route().filter(usable).or_else(|| {
        let table = std::fs::read_to_string("/proc/net/fib_trie").ok()?;
        local_addresses(&table).map(IpAddr::V4).find(usable)
    })
}

/// The addresses of all interfaces, out of the kernel's table of routes: each is a host of scope LOCAL.
fn local_addresses(table: &str) -> impl Iterator<Item = Ipv4Addr> {
    let lines = table.lines().zip(table.lines().skip(1));
    lines.filter_map(|(line, next)| {
        let address = line.trim().strip_prefix("|-- ")?;
        let is_local = next.trim() == "/32 host LOCAL";
        is_local.then(|| address.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_this_machine_are_read_from_its_table_of_routes() {
        let table = "Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
        |-- 127.0.0.1
           /32 host LOCAL
     |-- 198.51.100.7
        /32 host LOCAL
     |-- 198.51.100.255
        /32 link BROADCAST
";

        let found: Vec<_> = local_addresses(table).collect();

        assert_eq!(
            found,
            [[127, 0, 0, 1], [198, 51, 100, 7]].map(Ipv4Addr::from)
        );
    }
}
