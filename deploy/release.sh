#!/bin/sh
# The steps of a release that need no registry; .github/workflows/release.yml runs them. Run it in the root of the repository.
#   deploy/release.sh check TAG      prints version=VERSION, or fails if a chart, an example or the changelog has another version, or
#                                    if the section of the changelog lacks the result of make test-cluster
#   deploy/release.sh notes VERSION  prints the section of the changelog
#   deploy/release.sh charts FOLDER  packages the charts without symbolic links
set -eu

notes() { # VERSION: the lines below "## VERSION", up to the next section
  awk -v version="$1" '/^## / {printing = ($2 == version || $2 == "[" version "]"); next} printing' CHANGELOG.md | sed '/./,$!d'
}

refuse() { echo "$1" >&2; exit 1; }

same() { # FILE WHAT VERSIONS: refuses each version that is not the one of the tag
  [ -n "$3" ] || refuse "$1: no $2 was found"
  for found in $3; do
    [ "$found" = "$version" ] || refuse "$1: $2 is $found, and the tag is v$version"
  done
}

case ${1:-}${2:+ argument} in
  "check argument")
    version=${2#v}
    for chart in helm/*/Chart.yaml; do
      for field in version appVersion; do
        [ "$field $chart" = "appVersion helm/ringfence-lib/Chart.yaml" ] ||
          same "$chart" "$field" "$(sed -n "s/^$field: *\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$chart")"
      done
      # Helm leaves out a chart whose version is not the one in the list of dependencies.
      ! grep -q '^dependencies:' "$chart" ||
        same "$chart" "version of a dependency" "$(sed '1,/^dependencies:/d' "$chart" | sed -n 's/^ *version: *//p')"
    done
    same helm/environments/production.yaml global.tag "$(sed -n 's/^global:.* tag: "\([^"]*\)".*/\1/p' helm/environments/production.yaml)"
    same docs/deploy/helm.md "version of an image or package" \
      "$(grep -oE '(VERSION=|:|-)[0-9]+\.[0-9]+\.[0-9]+' docs/deploy/helm.md | sed 's/^VERSION=//; s/^[:-]//')"
    section=$(notes "$version")
    [ -n "$section" ] || refuse "CHANGELOG.md has no section $version"
    tested=$(echo "$section" | sed -n '/^### Tested/,/^### [^T]/p')
    echo "$tested" | grep -q 'failed = 0' || refuse "section $version of CHANGELOG.md has no result of make test-cluster under ### Tested"
    ! echo "$tested" | grep 'failed = [1-9]' >&2 || refuse "requests failed in make test-cluster"
    echo "version=$version" ;;
  "notes argument") notes "$2" ;;
  "charts argument")
    # A copy without links: Helm prints a warning for each link that it follows.
    copy=$(mktemp -d) && trap 'rm -rf "$copy"' EXIT
    mkdir -p "$2" && cp -RL helm deploy "$copy"
    helm package "$copy/helm/ringfence" "$copy/helm/console" "$copy/helm/simcarrier" --destination "$2" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
