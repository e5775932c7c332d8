#!/bin/sh
# The steps of a release that need no registry; .github/workflows/release.yml runs them. Run it in the root of the repository.
#   deploy/release.sh check TAG      prints version=VERSION, or fails if a chart or the changelog has another version
#   deploy/release.sh notes VERSION  prints the section of the changelog
#   deploy/release.sh charts FOLDER  packages the charts without symbolic links
set -eu

notes() { # VERSION: the lines below "## VERSION", up to the next section
  awk -v version="$1" '/^## / {printing = ($2 == version || $2 == "[" version "]"); next} printing' CHANGELOG.md | sed '/./,$!d'
}

case ${1:-}${2:+ argument} in
  "check argument")
    version=${2#v}
    for chart in helm/*/Chart.yaml; do
      for field in version appVersion; do
        found=$(sed -n "s/^$field: *\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" "$chart")
        [ "$field $chart" = "appVersion helm/ringfence-lib/Chart.yaml" ] || [ "$found" = "$version" ] ||
          { echo "$chart: $field is $found, and the tag is $2" >&2; exit 1; }
      done
    done
    [ -n "$(notes "$version")" ] || { echo "CHANGELOG.md has no section $version" >&2; exit 1; }
    echo "version=$version" ;;
  "notes argument") notes "$2" ;;
  "charts argument")
    # A copy without links: Helm prints a warning for each link that it follows.
    copy=$(mktemp -d) && trap 'rm -rf "$copy"' EXIT
    mkdir -p "$2" && cp -RL helm deploy "$copy"
    helm package "$copy/helm/ringfence" "$copy/helm/console" "$copy/helm/simcarrier" --destination "$2" ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
