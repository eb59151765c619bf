# The Debian (and Ubuntu) packages of the project: the one list that quickstart.sh, test.sh and .ci/run share. To be sourced.

# What the program needs: compiler and build, then the libraries with their headers.
gau_build_packages=(
  g++ cmake ninja-build
  libdnnl-dev          # matrix products
  libhdf5-dev          # corpora, models, checkpoints
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev
  libxxhash-dev        # digests
  zlib1g-dev libzstd-dev  # packed text
  libopenmpi-dev openmpi-bin  # several ranks
)

# What the tests need besides.
gau_test_packages=(
  libgtest-dev libgmock-dev
  librandom123-dev     # the reference of our random numbers
  hdf5-tools           # h5dump reads what we write
  gnuplot-nox fonts-dejavu-core
)

# What the quickstart needs besides: a text and plots. The program works without either.
gau_quickstart_packages=(bible-kjv bible-kjv-text gnuplot-nox fonts-dejavu-core)

gau_is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# gau_install PACKAGE...: installs those that are missing. Touches apt only when something is, asks for no input, and returns
# 1 with the command to type when it may not or cannot.
gau_install() {
  local missing=() package
  for package in "$@"; do
    gau_is_installed "$package" || missing+=("$package")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  local command=(apt-get install -y --no-install-recommends "${missing[@]}")
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "missing packages; as root: ${command[*]}" >&2
      return 1
    fi
    root=(sudo)
  fi
  if ! command -v apt-get >/dev/null; then
    echo "this is no Debian or Ubuntu; install what corresponds to: ${missing[*]}" >&2
    return 1
  fi
  echo "installing ${missing[*]}" >&2
  # sudo drops the environment, so env sets it behind sudo. A list that cannot be renewed may still do.
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q </dev/null >&2 || true
  if ! "${root[@]}" env DEBIAN_FRONTEND=noninteractive "${command[@]}" -q </dev/null >&2; then
    echo "could not install; as root: ${command[*]}" >&2
    return 1
  fi
}
