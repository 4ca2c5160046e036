#!/bin/sh
# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Installs the Debian packages that development and the lab need, as root. Costs a few milliseconds when they are there.
set -eu
cd "$(dirname "$0")/.."
command -v dpkg-query >/dev/null || exit 0

missing=
for package in $(cat tools/debian-packages.txt tests/lab/packages.txt); do
    case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" in
        "install ok installed") ;;
        *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "not installed, which needs root:$missing" >&2
    exit 0
fi
echo "installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null >/dev/null
# shellcheck disable=SC2086  # a list of words
apt-get install -q -y --no-install-recommends $missing </dev/null >/dev/null
