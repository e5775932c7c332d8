#!/bin/bash
# Starts a Kubernetes cluster of one node in the sandbox: cluster.sh FOLDER PROGRAMS. The sandbox ends its processes.
# The kubeconfig of an administrator is FOLDER/admin.conf.
set -eu
state=$1 programs=$2 address=10.88.0.10 socket=/run/cluster/containerd.sock
pki=$state/pki
rm -rf "$state" && mkdir -p "$pki" "$state/cni" /run/cluster
mount --make-rshared / # for the volumes of the kubelet; the mounts outside of the sandbox do not change

# There is no dummy interface in every kernel. A pair of virtual interfaces gives the node its address.
ip link add node0 type veth peer name node1
ip addr add $address/24 dev node0
ip link set node0 up
ip link set node1 up
ip route add default dev node0
sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1

certificate() { # NAME SUBJECT
  openssl req -newkey rsa:2048 -nodes -subj "$2" -keyout "$1.key" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" -extfile <(
    printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=DNS:kubernetes.default.svc,DNS:postgres.stores,IP:127.0.0.1,IP:10.96.0.1,IP:%s' $address)
}
(
  cd "$pki"
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=ca -keyout ca.key -out ca.crt
  openssl genrsa -out accounts.key 2048
  openssl rsa -in accounts.key -pubout -out accounts.pub
  certificate api /CN=api
  certificate admin /O=system:masters/CN=admin
  certificate manager /CN=system:kube-controller-manager
  certificate scheduler /CN=system:kube-scheduler
  certificate kubelet /O=system:nodes/CN=system:node:node
  certificate proxy /CN=system:kube-proxy
  certificate postgres /CN=postgres.stores
) > "$state/pki.log" 2>&1
for who in admin manager scheduler kubelet proxy; do
  cat > "$state/$who.conf" <<END
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "https://$address:6443", certificate-authority: $pki/ca.crt}}]
users: [{name: user, user: {client-certificate: $pki/$who.crt, client-key: $pki/$who.key}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
END
done
export KUBECONFIG=$state/admin.conf
kubectl=$programs/kubectl

start() { # PROGRAM ARGUMENTS...
  nohup "$@" > "$state/${1##*/}.log" 2>&1 &
}
await() { # SECONDS COMMAND...
  for _ in $(seq "$1"); do "${@:2}" > /dev/null 2>&1 && return; sleep 1; done
  echo "not ready after $1 s: ${*:2}" >&2
  tail -n 5 "$state"/*.log >&2
  exit 1
}
start "$programs/etcd" --data-dir "$state/etcd" --unsafe-no-fsync
start "$programs/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --advertise-address=$address --service-cluster-ip-range=10.96.0.0/16 \
  --tls-cert-file="$pki/api.crt" --tls-private-key-file="$pki/api.key" --client-ca-file="$pki/ca.crt" \
  --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/accounts.pub" \
  --service-account-signing-key-file="$pki/accounts.key" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --kubelet-client-certificate="$pki/admin.crt" --kubelet-client-key="$pki/admin.key" --allow-privileged=true \
  --kubelet-preferred-address-types=InternalIP # the API server cannot look up the name of the node
await 180 "$kubectl" get --raw /readyz
start "$programs/kube-controller-manager" --kubeconfig="$state/manager.conf" --use-service-account-credentials --leader-elect=false \
  --service-account-private-key-file="$pki/accounts.key" --root-ca-file="$pki/ca.crt" --allocate-node-cidrs --cluster-cidr=10.244.0.0/16
start "$programs/kube-scheduler" --kubeconfig="$state/scheduler.conf" --leader-elect=false

# restrict_oom_score_adj: root may lack the capability to lower the score of a process.
cat > "$state/containerd.toml" <<END
version = 2
root = "$state/containerd"
state = "/run/cluster/containerd"
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "cluster.test/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni"
END
cat > "$state/cni/10-node.conflist" <<END
{"cniVersion": "0.4.0", "name": "node", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": {"type": "host-local",
    "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "$state/addresses"}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
echo 'nameserver 127.0.0.1' > "$state/resolv.conf"
cat > "$state/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /$SANDBOX
containerRuntimeEndpoint: unix://$socket
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: $state/resolv.conf
failSwapOn: false
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: $pki/ca.crt}, webhook: {enabled: true}}
authorization: {mode: Webhook}
tlsCertFile: $pki/kubelet.crt
tlsPrivateKeyFile: $pki/kubelet.key
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 200Mi}
END
cat > "$state/proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: 10.244.0.0/16
hostnameOverride: node
clientConnection: {kubeconfig: $state/proxy.conf}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
END
for group in /sys/fs/cgroup/*/; do mkdir -p "$group$SANDBOX" 2> /dev/null || :; done
start containerd -c "$state/containerd.toml"
await 60 ctr -a $socket version
# Images of the cluster and of Ringfence. Version 0.2.0 has the same content, for an upgrade.
docker build -q -t cluster.test/pause:1 - <<< $'FROM standin/debian\nENTRYPOINT ["sleep", "infinity"]' > /dev/null
cp "$programs/coredns" "$state/coredns"
docker build -q -t cluster.test/coredns:1 -f - "$state" > /dev/null <<< $'FROM scratch\nCOPY coredns /coredns\nENTRYPOINT ["/coredns"]'
images='cluster.test/pause:1 cluster.test/coredns:1'
for image in $(sed -n 's#^ *image: \(postgres:[^@ ]*\|apache/kafka:[^@ ]*\).*#\1#p' docker-compose.yml); do
  docker tag "$image" "cluster.test/${image%%:*}:1" && images="$images cluster.test/${image%%:*}:1"
done
for service in gateway calls contacts-compliance dialer billing-wallet webhook-dispatcher console simcarrier; do
  for version in 0.1.0 0.2.0; do
    docker tag ringfence/$service registry.example.net/ringfence/$service:$version
    images="$images registry.example.net/ringfence/$service:$version"
  done
done
docker save $images | ctr -a $socket -n k8s.io images import - > "$state/images.log"
start "$programs/kubelet" --config="$state/kubelet.yaml" --kubeconfig="$state/kubelet.conf" --hostname-override=node --node-ip=$address --root-dir="$state/kubelet"
"$kubectl" create clusterrolebinding proxy --clusterrole=system:node-proxier --user=system:kube-proxy > /dev/null
start "$programs/kube-proxy" --config="$state/proxy.yaml"
await 120 "$kubectl" get node node
"$kubectl" wait --for=condition=Ready node/node --timeout=120s > /dev/null
# kube-router enforces the network policies and does nothing else here.
NODE_NAME=node start "$programs/kube-router" --kubeconfig="$state/admin.conf" --hostname-override=node --run-firewall \
  --run-router=false --run-service-proxy=false --service-cluster-ip-range=10.96.0.0/16

# The logs of deleted pods remain, for a failed test.
mkdir -p /var/log/kept
(while sleep 1; do cp -rlu /var/log/pods/. /var/log/kept; done) > /dev/null 2>&1 &

# Local volumes honour fsGroup.
for number in 1 2 3 4 5 6; do
  mkdir -p "$state/volumes/$number"
  "$kubectl" apply -f - > /dev/null <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: volume-$number}
spec:
  capacity: {storage: 20Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: $state/volumes/$number}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node]}]}]}}
END
done
"$kubectl" create namespace stores > /dev/null
"$kubectl" -n stores create secret generic postgres --from-file="$pki/postgres.crt" --from-file="$pki/postgres.key" > /dev/null
"$kubectl" -n stores create configmap kafka --from-env-file=deploy/compose/kafka.env > /dev/null
"$kubectl" apply -f test/containers/cluster.yaml > /dev/null
"$kubectl" -n kube-system rollout status deployment/coredns --timeout=180s > /dev/null
for store in postgres kafka; do "$kubectl" -n stores rollout status statefulset/$store --timeout=300s > /dev/null; done
