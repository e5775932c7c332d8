#!/bin/sh
# Installs Asterisk into the folder $1, for tests. Debian's stable releases have no Asterisk, so it comes from the
# unstable release of the mirror that apt already uses. The only change outside of the folder is the package mmdebstrap.
set -eu
folder=$1
[ ! -x "$folder/usr/sbin/asterisk" ] || exit 0

# Without Asterisk the tests are skipped. In CI that is a failure.
missing() {
  echo "Asterisk is not installed: $1" >&2
  [ "${CI:-}" != true ] || exit 1
  exit 0
}

command -v apt-get >/dev/null || missing "this machine has no apt-get"
if ! command -v mmdebstrap >/dev/null; then
  [ "$(id -u)" = 0 ] || missing "run 'apt-get install mmdebstrap' as root first"
  echo "installing mmdebstrap"
  apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends mmdebstrap >/dev/null
fi
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/\?$' | sort -u | head -n 1)
[ -n "$mirror" ] || missing "apt uses no Debian mirror"

echo "installing Asterisk into $folder (once; about a minute)"
mkdir -p "$(dirname "$folder")"
rm -rf "$folder.new"
# The mirror can be a snapshot, whose release file is past its date.
mmdebstrap --quiet --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' --include=asterisk \
  sid "$folder.new" "deb $mirror sid main" 2>"$folder.log" || { cat "$folder.log" >&2; missing "mmdebstrap failed"; }
rm -rf "$folder" "$folder.log"
mv "$folder.new" "$folder"
