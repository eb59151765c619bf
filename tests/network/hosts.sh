# Hosts on one machine, to be sourced: each is a network namespace with its own name and its own processes, and all are plugged
# into one switch. Needs root, iproute2, util-linux; hosts_allowed says whether this machine lets us.
#
# What a host runs is started by the host itself, as by sshd: a small server, the first process of its PID namespace, reads
# orders from a pipe. So no process on one host is a child of anything on another, and killing the server kills the host.
#
# Files of a set of hosts lie in $HOSTS_DIR; namespaces are called $HOSTS_NAME and a number, addresses are 10.213.0.1 and on.
HOSTS_NAME=gaut$$
HOSTS_DIR=$(mktemp -d "${TMPDIR:-/tmp}/gau-network-XXXXXX")
HOSTS_NET=10.213.0
HOSTS_COUNT=0
# Times that unanswered data are sent again before a connection is given up: 5 is 13 s, 4 is 6 s, the kernel's 15 is a quarter of
# an hour.
HOSTS_RETRIES=5

hosts_allowed() {
  [ "$(id -u)" = 0 ] || return 1
  command -v ip tc unshare nsenter mpirun >/dev/null || return 1
  ip netns add "$HOSTS_NAME-try" 2>/dev/null || return 1
  ip netns exec "$HOSTS_NAME-try" ip link add dummy-a type veth peer name dummy-b 2>/dev/null
  local works=$?
  ip netns del "$HOSTS_NAME-try"
  return $works
}

# hosts_up COUNT RATE: RATE as for host_rate, for both directions of every cable.
hosts_up() {
  local i
  HOSTS_COUNT=$1
  ip netns add "$HOSTS_NAME-sw"
  ip -n "$HOSTS_NAME-sw" link add switch type bridge
  ip -n "$HOSTS_NAME-sw" link set switch up
  : >"$HOSTS_DIR/hostfile"
  write_agent
  for i in $(seq "$1"); do
    host_up "$i" "$2"
    echo "$HOSTS_NET.$i slots=1" >>"$HOSTS_DIR/hostfile"
  done
}

host_up() {
  local name=$HOSTS_NAME-$1
  ip netns add "$name"
  ip link add eth0 netns "$name" type veth peer name "port$1" netns "$HOSTS_NAME-sw"
  ip -n "$name" address add "$HOSTS_NET.$1/24" dev eth0
  ip -n "$name" link set lo up
  ip -n "$name" link set eth0 up
  ip -n "$HOSTS_NAME-sw" link set "port$1" master switch
  ip -n "$HOSTS_NAME-sw" link set "port$1" up
  ip netns exec "$name" sysctl -q -w net.ipv4.tcp_retries2="$HOSTS_RETRIES"
  host_rate "$1" "$2"
  mkfifo "$HOSTS_DIR/orders$1"
  ip netns exec "$name" unshare --uts --pid --fork --mount-proc bash -c '
    hostname "$1"
    exec 3<>"$2"
    while read -r order <&3; do
      ( exec 3<&-; bash "$order" >"$order.out" 2>"$order.err" </dev/null; echo $? >"$order.part"; mv "$order.part" "$order.code" ) &
    done' server "host$1" "$HOSTS_DIR/orders$1" 2>"$HOSTS_DIR/server$1" &
  echo $! >"$HOSTS_DIR/outer$1"
}

# host_rate I RATE: as tc writes it, or off for what the machine can do.
host_rate() {
  local host=$1 rate=$2 place port
  for place in "$HOSTS_NAME-$host eth0" "$HOSTS_NAME-sw port$host"; do
    port=${place#* }
    if [ "$rate" = off ]; then
      tc -n "${place% *}" qdisc delete dev "$port" root 2>/dev/null
    else
      tc -n "${place% *}" qdisc replace dev "$port" root tbf rate "$rate" burst 256kb latency 50ms
    fi
  done
}

cable_cut() { ip -n "$HOSTS_NAME-sw" link set "port$1" down; }
cable_mend() { ip -n "$HOSTS_NAME-sw" link set "port$1" up; }

# The host's first process; with it all of them go, and the kernel closes their connections.
host_crash() { kill -9 $(pgrep -P "$(cat "$HOSTS_DIR/outer$1")"); }

# host_start I ORDER COMMAND...: on host I; ORDER names its files $HOSTS_DIR/ORDER.out, .err, .code.
host_start() {
  local host=$1 order=$HOSTS_DIR/$2
  shift 2
  { printf 'cd %q\n' "$PWD"; printf '%q ' "$@"; echo; } >"$order"
  echo "$order" >"$HOSTS_DIR/orders$host"
}
# order_ended ORDER; order_code ORDER
order_ended() { [ -e "$HOSTS_DIR/$1.code" ]; }
order_code() { cat "$HOSTS_DIR/$1.code"; }

# Lines of `ps` for what a host runs, its server and the look itself left out.
host_processes() {
  local first
  first=$(pgrep -P "$(cat "$HOSTS_DIR/outer$1")") || return 0
  nsenter -t "$first" --pid --mount ps -e -o pid=,args= | awk '$1 != 1' | grep -v -e 'ps -e -o' -e 'bash -c'
}

# In the place of ssh: agent HOST WORDS..., the words being a line for a shell there.
write_agent() {
  cat >"$HOSTS_DIR/agent" <<EOF
#!/bin/bash
host=\${1##*.}
shift
order=\$(mktemp "$HOSTS_DIR/remote-XXXXXX")
echo "\$*" >"\$order"
echo "\$order" >"$HOSTS_DIR/orders\$host"
until [ -e "\$order.code" ]; do sleep 0.1; done
cat "\$order.err" >&2
exit "\$(cat "\$order.code")"
EOF
  chmod +x "$HOSTS_DIR/agent"
}

# Words for mpirun: how to reach the hosts, and over which network to talk.
hosts_mpirun_args() {
  echo "--leave-session-attached --mca plm_rsh_agent $HOSTS_DIR/agent --mca plm_rsh_no_tree_spawn 1" \
    "--mca orte_keep_fqdn_hostnames 1 --mca oob_tcp_if_include $HOSTS_NET.0/24 --mca btl_tcp_if_include $HOSTS_NET.0/24" \
    "--mca oob_tcp_keepalive_time 4 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3" \
    "--mca pml ob1 --mca btl tcp,self --mca mpi_yield_when_idle 1 --bind-to none"
}

hosts_down() {
  local i
  for i in $(seq "$HOSTS_COUNT"); do
    host_crash "$i" 2>/dev/null
    wait "$(cat "$HOSTS_DIR/outer$i")" 2>/dev/null
    ip netns del "$HOSTS_NAME-$i"
  done
  [ "$HOSTS_COUNT" = 0 ] || ip netns del "$HOSTS_NAME-sw"
  HOSTS_COUNT=0
  rm -rf "$HOSTS_DIR"
}
