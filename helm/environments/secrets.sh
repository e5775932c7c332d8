#!/bin/sh
# Creates, once for a deployment, the keys and passwords that the charts need and do not contain:
#   PGSSLROOTCERT=FILE helm/environments/secrets.sh DIRECTORY POSTGRES [POOLER]      # host or host:port of Postgres, and of PgBouncer if there is one
# DIRECTORY/secrets.yaml   a Secret for each service, with every key that its chart requires: kubectl create -f
# DIRECTORY/values.yaml    the public keys, for helm: --values
# DIRECTORY/passwords.sql  the passwords of the roles. A superuser runs it after deploy/compose/postgres.sql
# PGSSLROOTCERT is the file with the certificate authorities of Postgres and PgBouncer, in PEM. It becomes the Secret certificates, which the charts mount. The value
# system means the public authorities in the images. The services then verify the identity of the server (sslmode=verify-full). PGSSLMODE=require encrypts and verifies nothing,
# PGSSLMODE=disable does not encrypt: use them only in a network where connections cannot be intercepted.
# openssl (1.1.1 or newer) generates all keys. Keep DIRECTORY in a safe and out of the repository: without SEALING_KEYS, CONSENT_KEYS and API_KEY_PEPPER a restored database cannot be used.
# Add KAFKA_PASSWORD and the keys of models and buckets to secrets.yaml yourself.
set -eu
umask 077
[ $# = 2 ] || [ $# = 3 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
into=$1 postgres=$2 pooler=${3:-}
case $postgres in *:*) ;; *) postgres=$postgres:5432 ;; esac
case $pooler in '' | *:*) ;; *) pooler=$pooler:6432 ;; esac
authority=''
case ${PGSSLMODE:-verify-full} in
  verify-full)
    case ${PGSSLROOTCERT:-} in
      '') echo "PGSSLROOTCERT is not set: it names the file with the certificate authority of Postgres, or is system for a public one. PGSSLMODE=require would encrypt and verify nothing" >&2; exit 2 ;;
      system) tls='sslmode=verify-full&sslrootcert=system' ;;
      *)
        openssl x509 -in "$PGSSLROOTCERT" -noout || { echo "PGSSLROOTCERT: $PGSSLROOTCERT contains no certificate in PEM" >&2; exit 2; }
        authority=$PGSSLROOTCERT tls='sslmode=verify-full&sslrootcert=/etc/ringfence/postgres-ca.pem' ;;
    esac ;;
  require | disable) tls="sslmode=$PGSSLMODE" ;;
  *) echo "PGSSLMODE is $PGSSLMODE: use verify-full (the default), require or disable" >&2; exit 2 ;;
esac
mkdir -p "$into"
[ ! -e "$into/secrets.yaml" ] || { echo "$into/secrets.yaml is there already: what it holds cannot be made twice" >&2; exit 1; }
keys=$(mktemp -d) && trap 'rm -rf "$keys"' EXIT

services='gateway calls contacts-compliance dialer billing-wallet webhook-dispatcher'
for service in $services; do openssl genpkey -algorithm ed25519 -out "$keys/$service"; done
seed() { openssl pkey -in "$keys/$1" -outform DER | tail -c 32 | openssl base64 -A; }
public() { openssl pkey -in "$keys/$1" -pubout -outform DER | tail -c 32 | openssl base64 -A; }
database() { echo "postgres://$1:$2@$3/ringfence?$tls"; }

secret() { # SERVICE: writes the Secret with the keys of this service and the keys that all services have
  schema=$(echo "$1" | tr - _) app=$(openssl rand -hex 24) owner=$(openssl rand -hex 24)
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData:\n' "$1"
  printf '  POSTGRES_URL: "%s"\n' "$(database "${schema}_app" "$app" "${pooler:-$postgres}")"
  [ -z "$pooler" ] || printf '  POSTGRES_DIRECT_URL: "%s"\n' "$(database "${schema}_app" "$app" "$postgres")"
  printf '  POSTGRES_MIGRATE_URL: "%s"\n  SIGNING_KEY: "%s"\n' "$(database "${schema}_owner" "$owner" "$postgres")" "$(seed "$1")"
  case $1 in
    gateway) printf '  API_KEY_PEPPER: "%s"\n  OPERATOR_TOKENS: "operator=%s"\n' "$(openssl rand -hex 32)" "$(openssl rand -hex 32)" ;;
    contacts-compliance) printf '  CONSENT_KEYS: "first=%s"\n' "$(openssl rand -base64 32)" ;;
    dialer) printf '  SEALING_KEYS: "first=%s"\n  SIM_TOKEN: "%s"\n' "$(openssl rand -base64 32)" "$sim_token" ;;
    webhook-dispatcher) printf '  SEALING_KEYS: "first=%s"\n' "$(openssl rand -base64 32)" ;;
  esac
  printf "ALTER ROLE %s_app PASSWORD '%s';\nALTER ROLE %s_owner PASSWORD '%s';\n" "$schema" "$app" "$schema" "$owner" >> "$into/passwords.sql"
}
sim_token=$(openssl rand -hex 24)
: > "$into/passwords.sql"
{
  for service in $services; do secret "$service"; done
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: simcarrier}\nstringData:\n  SIMCARRIER_TOKEN: "%s"\n' "$sim_token"
  if [ -n "$authority" ]; then
    printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: certificates}\nstringData:\n  postgres-ca.pem: |\n'
    sed 's/^/    /' "$authority"
  fi
} > "$into/secrets.yaml"

files=''
[ -z "$authority" ] || files='files: {secret: certificates}'

trusts() { # SERVICE ASKER...
  printf '%s: {%senv: {TRUSTED_KEYS: "' "$1" "${files:+$files, }"; shift
  between=''
  for asker; do printf '%s%s=%s' "$between" "$asker" "$(public "$asker")"; between=,; done
  printf '"}}\n'
}
{
  [ -z "$files" ] || echo "gateway: {$files}"
  trusts calls gateway
  trusts contacts-compliance gateway calls dialer
  trusts dialer gateway calls
  trusts billing-wallet gateway calls dialer
  trusts webhook-dispatcher gateway
} > "$into/values.yaml"
echo "$into holds secrets.yaml, values.yaml and passwords.sql"
