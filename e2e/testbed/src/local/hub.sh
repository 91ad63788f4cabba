# The network that joins the nodes of a testbed: a network namespace with a bridge.
# $1: file that says that all is done
set -eu
ip link set lo up
ip link add br0 type bridge
ip addr add 172.30.0.254/16 dev br0
ip -6 addr add fd00:30::fe/64 dev br0 nodad
ip link set br0 up
: >"$1"
exec sleep infinity
