#!/bin/sh
# Makes, once for a deployment, what the charts need and do not hold:
#   helm/environments/secrets.sh DIRECTORY POSTGRES [POOLER]      # host or host:port of Postgres, and of PgBouncer where there is one
# DIRECTORY/secrets.yaml   a Secret for each service, with every key that its chart must have: kubectl create -f
# DIRECTORY/values.yaml    the public keys, for helm: --values
# DIRECTORY/passwords.sql  the roles' passwords, to be run by a superuser after deploy/compose/postgres.sql
# Everything is drawn here by openssl (1.1.1 or newer). Put DIRECTORY, which is none of the repository's, into a safe: without SEALING_KEYS, CONSENT_KEYS and API_KEY_PEPPER a restored database is of no use.
# The URLs' sslmode is PGSSLMODE (require); KAFKA_PASSWORD and keys of models or buckets are yours to add.
set -eu
umask 077
[ $# = 2 ] || [ $# = 3 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
into=$1 postgres=$2 pooler=${3:-}
case $postgres in *:*) ;; *) postgres=$postgres:5432 ;; esac
case $pooler in '' | *:*) ;; *) pooler=$pooler:6432 ;; esac
mkdir -p "$into"
[ ! -e "$into/secrets.yaml" ] || { echo "$into/secrets.yaml is there already: what it holds cannot be made twice" >&2; exit 1; }
keys=$(mktemp -d) && trap 'rm -rf "$keys"' EXIT

services='gateway calls contacts-compliance dialer billing-wallet webhook-dispatcher'
for service in $services; do openssl genpkey -algorithm ed25519 -out "$keys/$service"; done
seed() { openssl pkey -in "$keys/$1" -outform DER | tail -c 32 | openssl base64 -A; }
public() { openssl pkey -in "$keys/$1" -pubout -outform DER | tail -c 32 | openssl base64 -A; }
database() { echo "postgres://$1:$2@$3/ringfence?sslmode=${PGSSLMODE:-require}"; }

secret() { # SERVICE: its own keys beside those that all have
  schema=$(echo "$1" | tr - _) app=$(openssl rand -hex 24) owner=$(openssl rand -hex 24)
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData:\n' "$1"
  printf '  POSTGRES_URL: "%s"\n' "$(database "${schema}_app" "$app" "${pooler:-$postgres}")"
  [ -z "$pooler" ] || printf '  POSTGRES_DIRECT_URL: "%s"\n' "$(database "${schema}_app" "$app" "$postgres")"
  printf '  POSTGRES_MIGRATE_URL: "%s"\n  SIGNING_KEY: "%s"\n' "$(database "${schema}_owner" "$owner" "$postgres")" "$(seed "$1")"
  case $1 in
    gateway) printf '  API_KEY_PEPPER: "%s"\n  OPERATOR_TOKENS: "operator=%s"\n' "$(openssl rand -hex 32)" "$(openssl rand -hex 32)" ;;
    contacts-compliance) printf '  CONSENT_KEYS: "first=%s"\n' "$(openssl rand -base64 32)" ;;
    dialer | webhook-dispatcher) printf '  SEALING_KEYS: "first=%s"\n' "$(openssl rand -base64 32)" ;;
  esac
  printf "ALTER ROLE %s_app PASSWORD '%s';\nALTER ROLE %s_owner PASSWORD '%s';\n" "$schema" "$app" "$schema" "$owner" >> "$into/passwords.sql"
}
: > "$into/passwords.sql"
for service in $services; do secret "$service"; done > "$into/secrets.yaml"

trusts() { # SERVICE ASKER...
  printf '%s: {env: {TRUSTED_KEYS: "' "$1"; shift
  between=''
  for asker; do printf '%s%s=%s' "$between" "$asker" "$(public "$asker")"; between=,; done
  printf '"}}\n'
}
{
  trusts calls gateway
  trusts contacts-compliance gateway calls dialer
  trusts dialer gateway calls
  trusts billing-wallet gateway calls
  trusts webhook-dispatcher gateway
} > "$into/values.yaml"
echo "$into holds secrets.yaml, values.yaml and passwords.sql"
