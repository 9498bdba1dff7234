# Sourced by the scripts beside it. Sets: root, python (the interpreter everything uses), jobs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=$(nproc)

# ONSTREAM_PYTHON names an interpreter that has what is needed (a GPU machine without a network,
# say): no virtual environment is made then and nothing is installed into it.
if [ -n "${ONSTREAM_PYTHON:-}" ]; then
  python=$(command -v "$ONSTREAM_PYTHON") || {
    echo "ONSTREAM_PYTHON=$ONSTREAM_PYTHON: no such command" >&2
    exit 1
  }
  [[ $python = /* ]] || python=$root/$python
else
  python=$root/.venv/bin/python
  export PATH="$root/.venv/bin:$PATH"
fi

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# A digest of files, by content and name.
digest() {
  sha256sum "$@" | sha256sum | cut -d' ' -f1
}

# stale STAMP DIGEST: is the work that STAMP records missing or made from something else?
stale() {
  [ ! -f "$1" ] || [ "$(cat "$1")" != "$2" ]
}
