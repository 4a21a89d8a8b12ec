#!/bin/sh
# bazel run //docs:site               renders docs/ as a website into site/
# bazel run //docs:site -- --serve    and shows it at http://localhost:8000, anew after each change
#
# The Python packages (requirements.txt) go into a virtual environment of their own under ~/.cache,
# once; after that no network is needed, and the site itself never asks for anything from elsewhere.
set -eu
root=${BUILD_WORKSPACE_DIRECTORY:-$(cd "$(dirname "$0")/../.." && pwd)}
docs=$root/tools/docs
key=$(cksum < "$docs/requirements.txt" | cut -d ' ' -f 1)
venv=${XDG_CACHE_HOME:-$HOME/.cache}/tiny-vllm/site-$key
if [ ! -e "$venv/ready" ]; then
  echo "site: installing MkDocs Material into $venv (once)" >&2
  rm -rf "$venv"
  python3 -m venv "$venv" || { echo "site: python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$docs/requirements.txt"
  touch "$venv/ready"
fi
cd "$root"
export NO_MKDOCS_2_WARNING=1  # of its end of life in 2027; the versions are pinned
config=$docs/site/mkdocs.yml
case ${1-} in
  --serve) exec "$venv/bin/mkdocs" serve --config-file "$config" --dev-addr "localhost:${2-8000}" ;;
  "") "$venv/bin/mkdocs" build --quiet --clean --config-file "$config" ;;
  *) echo "site: unknown argument '$1'; expected nothing, or --serve [PORT]" >&2; exit 2 ;;
esac
echo "The site is in $root/site; to read it: python3 -m http.server --directory $root/site 8000"
