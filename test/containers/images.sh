#!/bin/bash
# Makes stand-ins for the images that deploy/Dockerfile and docker-compose.yml pin, because the machines of the tests reach no
# registry of images. They have the same tags, and contain Debian's packages or programs of the Go modules.
#   images.sh fetch FOLDER          downloads the Debian packages; needs the network
#   images.sh build FOLDER TOOLS KAFKA  builds the images; runs in the sandbox
set -eu
command=$1 folder=$2
mkdir -p "$folder"

if [ "$command" = fetch ]; then
  packages=ca-certificates,git,gosu,busybox,postgresql-15,openjdk-17-jre-headless,prometheus
  [ "$(cat "$folder/packages" 2> /dev/null)" != $packages ] || exit 0
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/\?$' | sort -u | head -n 1)
  [ -n "$mirror" ] || { echo "apt uses no Debian mirror, which the stand-ins for images need" >&2; exit 1; }
  echo "downloading the packages of the stand-in images (once; two minutes)"
  mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include=$packages \
    bookworm "$folder/root.tar" "deb $mirror bookworm main" 2> "$folder/mmdebstrap.log" || { cat "$folder/mmdebstrap.log" >&2; exit 1; }
  echo $packages > "$folder/packages"
  exit 0
fi

tools=$3 kafka=$4
# tag IMAGE: the image with the tag in docker-compose.yml, without the digest
tag() { sed -n "s#^ *image: \($1:[^@ ]*\).*#\1#p" docker-compose.yml | head -n 1; }
go=golang:$(sed -n 's/^ARG GO=\([^@]*\).*/\1/p' deploy/Dockerfile)
missing() { ! docker image inspect "$1" > /dev/null 2>&1; }
context=$(mktemp -d "$folder/context.XXXXXX")
trap 'rm -rf "$context"' EXIT
# build IMAGE: builds the files of the context with the Dockerfile on standard input
build() { DOCKER_BUILDKIT=0 docker build -q -t "$1" -f - "$context" > /dev/null; rm -rf "${context:?}"/*; }

# Images of an earlier form of this script, of other packages or of other programs are built again.
sum=$({ cat "$0" "$folder/packages"; stat -c '%n %s %Y' "$tools"/* "$kafka"/lib/* 2> /dev/null || :; } | sha256sum)
[ "$(cat "$folder/images.sum" 2> /dev/null)" = "$sum" ] || docker image rm -f standin/debian "$go" "$(tag postgres)" "$(tag apache/kafka)" "$(tag minio/minio)" \
  "$(tag otel/opentelemetry-collector)" "$(tag jaegertracing/jaeger)" "$(tag prom/prometheus)" > /dev/null 2>&1 || :
! missing standin/debian || docker import "$folder/root.tar" standin/debian > /dev/null
if missing "$go"; then
  # The modules come from the module cache of this machine, which the test serves in the sandbox.
  tar -C / --exclude="${GOROOT#/}/test" -cf "$context/go.tar" "${GOROOT#/}"
  build "$go" <<END
FROM standin/debian
ADD go.tar /
ENV PATH=$GOROOT/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOTOOLCHAIN=local GOPROXY=http://172.17.0.1:8999 GOSUMDB=off GOMAXPROCS=${GOMAXPROCS:-2}
END
fi
image=$(tag postgres)
if missing "$image"; then
  cat > "$context/entry" <<'END'
#!/bin/bash
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  install -d -o postgres -g postgres -m 700 "$PGDATA"
  printf %s "$POSTGRES_PASSWORD" > /tmp/password; chown postgres /tmp/password
  gosu postgres initdb -U postgres --pwfile=/tmp/password --auth-host=scram-sha-256 --auth-local=trust; rm /tmp/password
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"; echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
  gosu postgres pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
  [ "$POSTGRES_DB" = postgres ] || gosu postgres createdb -U postgres "$POSTGRES_DB"
  for file in /docker-entrypoint-initdb.d/*.sql; do
    [ ! -e "$file" ] || gosu postgres psql -v ON_ERROR_STOP=1 -U postgres -d "$POSTGRES_DB" -f "$file"
  done
  gosu postgres pg_ctl -D "$PGDATA" -m fast -w stop
fi
exec gosu postgres "$@"
END
  build "$image" <<'END'
FROM standin/debian
ENV PGDATA=/var/lib/postgresql/data LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin
RUN mkdir -p /var/run/postgresql && chown postgres /var/run/postgresql
VOLUME /var/lib/postgresql/data
COPY entry /usr/bin/entry
RUN chmod 755 /usr/bin/entry
ENTRYPOINT ["entry"]
STOPSIGNAL SIGINT
CMD ["postgres"]
END
fi
image=$(tag apache/kafka)
if missing "$image"; then
  cp -r "$kafka/lib" "$kafka/log4j2.properties" "$context"
  mkdir "$context/defaults"
  printf 'process.roles=broker,controller\nnode.id=1\n' > "$context/defaults/server.properties"
  for file in log4j2 tools-log4j2; do
    echo 'Configuration: {Properties: {Property: []}, Appenders: {}, Loggers: {Root: {level: INFO, AppenderRef: []}, Logger: []}}' > "$context/defaults/$file.yaml"
  done
  cat > "$context/run" <<'END'
#!/bin/bash
export CLUSTER_ID=${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}
run() { java "$1" -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties -cp '/opt/kafka/lib/*' "${@:2}"; }
out=$(run -Xmx256M kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
  --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config 2>&1) ||
  grep -qi 'already formatted' <<< "$out" || { echo "$out" >&2; exit 1; }
exec java -Xmx1G -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties -cp '/opt/kafka/lib/*' kafka.Kafka /opt/kafka/config/server.properties
END
  build "$image" <<'END'
FROM standin/debian
COPY lib /opt/kafka/lib
COPY defaults /etc/kafka/docker
COPY run log4j2.properties /opt/kafka/
RUN useradd -m appuser && mkdir -p /opt/kafka/config /var/lib/kafka/data /mnt/shared/config && \
    chown -R appuser /opt/kafka/config /var/lib/kafka && chmod 755 /opt/kafka/run
USER appuser
VOLUME /var/lib/kafka/data
CMD ["/opt/kafka/run"]
END
fi
# program IMAGE PROGRAMS LINES: an image with programs in /bin, and wget. The tests of the cluster do not need these programs.
program() {
  image=$(tag "$1")
  missing "$image" || return 0
  for file in $2; do [ -e "$file" ] || return 0; done
  for file in $2; do cp "$file" "$context"; done
  { printf 'FROM standin/debian\nRUN ln -s busybox /bin/wget\n'
    for file in $2; do echo "COPY ${file##*/} /bin/"; done
    printf "$3"; } | build "$image"
}
program minio/minio "$tools/minio $tools/mc" 'ENTRYPOINT ["minio"]\n'
program otel/opentelemetry-collector $tools/otelcol 'USER 10001\nENTRYPOINT ["/bin/otelcol"]\n'
program jaegertracing/jaeger $tools/jaeger 'ENV JAEGER_LISTEN_HOST=0.0.0.0\nUSER 10001\nENTRYPOINT ["/bin/jaeger"]\n'
program prom/prometheus '' 'RUN mkdir -p /prometheus && chown 65534 /prometheus\nUSER 65534\nVOLUME /prometheus\nENTRYPOINT ["prometheus"]\n'
echo "$sum" > "$folder/images.sum"
