#!/bin/bash
# Runs a command in new network, process and mount namespaces, with Docker Engine: sandbox.sh FOLDER COMMAND...
# Images stay in FOLDER/docker for the next run. The network has no way out, so nothing can disturb other programs of this
# machine. When the command ends or this script is interrupted, the kernel ends all processes of the sandbox and removes its
# network and mounts. Needs root.
set -eu

inside() { # the first process of the sandbox
  local folder=$1 engine=0; shift
  mount -t tmpfs tmpfs /run # sockets, locks and network namespaces of programs outside are not visible
  ip link set lo up
  # Docker Engine, containerd, the kubelet and the network plugins write to these folders. Here they write to tmpfs.
  local dir
  mkdir /run/sandbox && mount --bind "$folder" /run/sandbox
  for dir in /etc /opt /root /usr/libexec /var; do
    mkdir -p "/run/overlay$dir/upper" "/run/overlay$dir/work"
    # The file can be a mount, which the overlay would hide.
    [ $dir != /etc ] || cp /etc/hosts /run/overlay/etc/upper/hosts
    mount -t overlay overlay -o "lowerdir=$dir,upperdir=/run/overlay$dir/upper,workdir=/run/overlay$dir/work" "$dir"
  done
  mount --bind /run/sandbox "$folder" # the folder of the images can be in one of them
  # Temporary files contain keys and passwords. /tmp itself stays, because the repository can be in it.
  mkdir -m 1777 /run/tmp && export TMPDIR=/run/tmp
  # Docker Engine and the kubelet change these settings of the whole machine. Here they change copies.
  local setting
  mkdir /run/settings
  for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    cat "/proc/sys/$setting" > "/run/settings/${setting##*/}"
    mount --bind "/run/settings/${setting##*/}" "/proc/sys/$setting"
  done
  # Containers of an interrupted run would start again.
  rm -rf "$folder"/docker/{containers,volumes,network}
  dockerd --data-root "$folder/docker" --cgroup-parent "/$SANDBOX" --storage-driver overlay2 --bip 172.17.0.1/16 \
    > "$folder/dockerd.log" 2>&1 &
  for _ in $(seq 180); do docker version > /dev/null 2>&1 && engine=1 && break; sleep 1; done
  [ $engine = 1 ] || { tail -n 20 "$folder/dockerd.log" >&2; echo "Docker Engine does not start" >&2; exit 1; }
  local status=0
  "$@" || status=$?
  exit $status
}

if [ -n "${SANDBOX:-}" ]; then inside "$@"; fi

[ "$(id -u)" = 0 ] || { echo "the sandbox needs root, for its namespaces" >&2; exit 1; }
mkdir -p "$1"
exec 9> "$1/lock"
flock -n 9 || { echo "another sandbox uses $1" >&2; exit 1; }
export SANDBOX=ringfence-$$ PATH=/usr/bin:/usr/sbin:/bin:/sbin:$PATH
folder=$1 sandbox=''
remove() {
  trap '' INT TERM HUP
  # The end of the first process in the namespaces ends all others. unshare waits for it.
  [ -z "$sandbox" ] || kill -KILL "$(ps -o pid= --ppid "$sandbox" | tr -d ' ')" || kill -KILL "$sandbox" || :
  wait || :
  rm -rf "$folder"/context.* # of images.sh
  # The logs of a cluster remain.
  [ ! -d "$folder/cluster" ] || find "$folder/cluster" -mindepth 1 -maxdepth 1 ! -name '*.log' -exec rm -rf {} +
  for group in /sys/fs/cgroup/*/"$SANDBOX" /sys/fs/cgroup/"$SANDBOX"; do
    [ ! -d "$group" ] || for _ in 1 2 3 4 5; do find "$group" -depth -type d -exec rmdir {} + 2> /dev/null && break; sleep 1; done
  done
}
trap remove EXIT
trap 'exit 130' INT TERM HUP
unshare --net --pid --fork --kill-child --mount --mount-proc "$0" "$@" 9>&- &
sandbox=$!
status=0
wait $sandbox || status=$?
sandbox=''
exit $status
