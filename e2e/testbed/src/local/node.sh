# A node: a network namespace with a link to the hub, and a mount namespace with directories of its own under the paths
# that kubelet and containerd use everywhere.
# $1: file that says that all is done   $2: directory of the cluster   $3: pid in the hub   $4: name of the link there
# $5, $6: the node's addresses          the rest: routes to other clusters, a range and a gateway each
set -eu
ready=$1 directory=$2 hub=$3 link=$4 v4=$5 v6=$6
shift 6

mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p "$directory/var-data/upper" "$directory/var-data/work" "$directory/kubelet-data" "$directory/pods"
mount -t overlay -o "lowerdir=/var,upperdir=$directory/var-data/upper,workdir=$directory/var-data/work" overlay /var
mkdir -p /run/containerd /run/netns /var/lib/kubelet /var/log/pods /var/log/containers
for own in kubelet-data:/var/lib/kubelet pods:/var/log/pods; do
  mount --bind "$directory/${own%%:*}" "${own#*:}"
  mount --make-private "${own#*:}"
  mount --make-shared "${own#*:}"
done

# kubelet sets these for the whole machine unless it finds the values that it wants: let it find them.
mkdir -p "$directory/sysctl"
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=$directory/sysctl/${setting##*/}
  echo "${setting#*=}" >"$file"
  if [ -e "/proc/sys/${setting%%=*}" ]; then mount --bind "$file" "/proc/sys/${setting%%=*}"; fi
done

ip link set lo up
ip link add eth0 type veth peer name "$link" netns "$hub"
nsenter --net="/proc/$hub/ns/net" ip link set "$link" master br0 up
ip addr add "$v4/16" dev eth0
ip -6 addr add "$v6/64" dev eth0 nodad
ip link set eth0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
ip route add default via 172.30.0.254
ip -6 route add default via fd00:30::fe
while [ $# -gt 0 ]; do
  case $1 in
    *:*) ip -6 route add "$1" via "$2" ;;
    *) ip route add "$1" via "$2" ;;
  esac
  shift 2
done

: >"$ready"
exec sleep infinity
