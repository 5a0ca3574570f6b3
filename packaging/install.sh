#!/bin/sh
# Installs Toolgate below ~/.local: downloads the archive for this machine, verifies its checksum, and copies
# the program, its completions and its manual pages.
#
#   install.sh [--prefix DIR] [--version X.Y.Z] [--from URL-OR-DIRECTORY]
#
# The checksum comes from the same place as the archive: it finds a damaged download, not a forged release.
set -eu

repository=https://github.com/toolgate/toolgate
prefix=${HOME:-}/.local
version=
from=

fail() {
    echo "error: $1" >&2
    [ $# -lt 2 ] || echo "hint: $2" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
        --prefix | --version | --from)
            [ $# -ge 2 ] || fail "$1 needs a value"
            case $1 in
                --prefix) prefix=$2 ;;
                --version) version=$2 ;;
                --from) from=$2 ;;
            esac
            shift 2
            ;;
        -h | --help)
            sed -n '2,7s/^# \{0,1\}//p' "$0"
            exit 0
            ;;
        *) fail "there is no option $1" "--help lists them" ;;
    esac
done

case $prefix in
    /*) ;;
    *) fail "the prefix $prefix is not an absolute path" "name one: --prefix \"\$HOME/.local\"" ;;
esac

find_target() {
    system=$(uname -s)
    machine=$(uname -m)
    case $machine in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
    esac
    case $system in
        Linux)
            # The archives need glibc.
            if ldd --version 2>&1 | grep -qi musl; then
                fail "there is no archive for musl" "build it: cargo install --locked --git $repository toolgate-cli"
            fi
            echo "$machine-unknown-linux-gnu"
            ;;
        Darwin) echo "$machine-apple-darwin" ;;
        *) fail "there is no archive for $system" "Toolgate runs on Linux and macOS" ;;
    esac
}

# Gets the file $1 of the release into $2.
get_file() {
    case $from in
        http://127.0.0.1[:/]* | http://localhost[:/]*) protocols='=http' ;;
        https://*) protocols='=https' ;;
        http://*) fail "$from is not encrypted" "use https://" ;;
        *)
            cp "$from/$1" "$2" || fail "$from/$1 cannot be read"
            return
            ;;
    esac
    if command -v curl >/dev/null 2>&1; then
        curl --proto "$protocols" --tlsv1.2 -fsSL -o "$2" "$from/$1" || fail "$from/$1 cannot be downloaded"
    elif command -v wget >/dev/null 2>&1; then
        wget -q -O "$2" "$from/$1" || fail "$from/$1 cannot be downloaded"
    else
        fail "neither curl nor wget is installed"
    fi
}

digest_of() {
    if command -v sha256sum >/dev/null 2>&1; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null 2>&1; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    else
        fail "neither sha256sum nor shasum is installed, so the archive cannot be verified"
    fi
}

target=$(find_target)
name=toolgate-$target
if [ -z "$from" ]; then
    case $version in
        '') from=$repository/releases/latest/download ;;
        *) from=$repository/releases/download/v$version ;;
    esac
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
get_file "$name.tar.gz" "$work/archive"
get_file "$name.tar.gz.sha256" "$work/checksum"
expected=$(cut -d ' ' -f 1 <"$work/checksum")
found=$(digest_of "$work/archive")
if [ -z "$expected" ] || [ "$expected" != "$found" ]; then
    fail "the checksum of $name.tar.gz is $found, and should be $expected" "download it again; nothing was installed"
fi

tar -xzf "$work/archive" -C "$work"
unpacked=$work/$name
# Before anything is copied: a system with an older libc cannot run it.
"$unpacked/bin/toolgate" --version >/dev/null || fail "the program does not run on this system" "build it: cargo install --locked --git $repository toolgate-cli"

mkdir -p "$prefix/bin" "$prefix/share"
cp -R "$unpacked/share/." "$prefix/share/"
# Renamed at the end: a program that runs is replaced, not overwritten.
cp "$unpacked/bin/toolgate" "$prefix/bin/.toolgate.new"
mv "$prefix/bin/.toolgate.new" "$prefix/bin/toolgate"
echo "installed: $prefix/bin/toolgate, $("$prefix/bin/toolgate" --version)"
case :${PATH:-}: in
    *":$prefix/bin:"*) echo "next: toolgate demo" ;;
    *) echo "next: add $prefix/bin to PATH, and then: toolgate demo" ;;
esac
