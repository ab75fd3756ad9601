# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian packages without installing them: a private package list, so that neither root nor a change to the host's
# own sources is needed, and no kernel ever lands on the host.

DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
DEBIAN_SUITES='bookworm|trixie|forky|sid|oldoldstable|oldstable|stable|testing|unstable'

# host_mirror SUITE-PATTERN: the address from which the host's own apt takes a suite of that name, if it does.
host_mirror() {
	# shellcheck disable=SC2016 # apt's own variables
	apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		awk -v suite="^($1)\$" '$1 ~ suite { print $2; exit }'
}

debian_mirror() {
	local mirror=${DEBIAN_MIRROR:-$(host_mirror "$DEBIAN_SUITES")}
	[[ $mirror ]] || die "this host's apt has no Debian sources, so where kernels come from is unknown;" \
		"set DEBIAN_MIRROR to the address of a Debian mirror (and DEBIAN_SECURITY_MIRROR if it is not DEBIAN_MIRROR-security) and run again"
	printf '%s\n' "${mirror%/}"
}

debian_security_mirror() {
	local mirror=${DEBIAN_SECURITY_MIRROR:-}
	[[ $mirror || ${DEBIAN_MIRROR:-} ]] || mirror=$(host_mirror "($DEBIAN_SUITES)-security")
	[[ $mirror ]] || mirror=$(debian_mirror)-security
	printf '%s\n' "${mirror%/}"
}

# The private package list in use, and its architecture; debian_update chooses them.
apt_state=
apt_architecture=

# private_apt TOOL ARGS…: apt-get or apt-cache on the private package list. The host's configuration (proxies) holds. An
# old list from a mirror that lags behind will do: the kernels are pinned to old versions anyway.
private_apt() {
	local tool=$1 state=$apt_state
	shift
	"$tool" -q \
		-o Dir::State="$state/state" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
		-o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Architecture="$apt_architecture" -o APT::Architectures="$apt_architecture" -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false "$@"
}

# debian_sources SUITE: the lines of a sources.list.
debian_sources() {
	local main security
	main=$(debian_mirror)
	printf 'deb [signed-by=%s] %s %s main\n' "$DEBIAN_KEYRING" "$main" "$1"
	# The rolling suite has no security archive.
	[[ $1 != sid ]] || return 0
	security=$(debian_security_mirror)
	printf 'deb [signed-by=%s] %s %s-security main\n' "$DEBIAN_KEYRING" "$security" "$1"
}

# debian_update SUITE [ARCHITECTURE]: fetches its package lists, at most once an hour, and chooses them for what follows; default: amd64.
debian_update() {
	local suite=$1
	apt_architecture=${2:-amd64}
	apt_state=$SLUICE_CACHE/apt/$suite${2:+-$2}
	[[ -z $(find "$apt_state/updated" -mmin -60 2>/dev/null) ]] || return 0
	[[ -e $DEBIAN_KEYRING ]] || die "$DEBIAN_KEYRING is missing; run vm/install-packages, which installs debian-archive-keyring"
	mkdir -p "$apt_state"/state/lists/partial "$apt_state"/cache/archives/partial
	: >"$apt_state/status"
	debian_sources "$suite" >"$apt_state/sources.list"
	say "fetching the package lists of Debian $suite"
	private_apt apt-get update -qq --error-on=any >&2 ||
		die "the package lists could not be fetched; check that this machine reaches its Debian mirror and run again"
	touch "$apt_state/updated"
}

# debian_has PACKAGE VERSION
debian_has() {
	private_apt apt-cache madison "$1" | awk -F ' *[|] *' -v version="$2" '$2 == version { found = 1 } END { exit !found }'
}

# debian_newest PACKAGE-PATTERN: the last package, by version order, whose whole name matches.
debian_newest() {
	private_apt apt-cache search --names-only "^$1\$" | awk '{ print $1 }' | sort -V | tail -n 1
}

debian_version() {
	private_apt apt-cache madison "$1" | awk -F ' *[|] *' 'NR == 1 { print $2 }'
}

# debian_unpack DIR PACKAGE=VERSION…: downloads the packages and unpacks them into DIR.
debian_unpack() {
	local dir=$1 debs
	shift
	debs=$(mktemp -d "$SLUICE_CACHE/debs.XXXXXX")
	say "downloading $*"
	(cd "$debs" && private_apt apt-get download -qq "$@" >&2) || {
		rm -rf "$debs"
		die "the download failed; check that this machine reaches its Debian mirror and run again"
	}
	for deb in "$debs"/*.deb; do
		dpkg-deb --extract "$deb" "$dir"
	done
	rm -rf "$debs"
}
