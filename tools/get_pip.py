# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for get-pip.py in ansible-test's cache: pip from ensurepip, so that a package index is all it takes.

ansible-test runs it with the interpreter of a new virtual environment and the pip version it wants.
"""

import subprocess
import sys

NOT_FOR_PIP = ("--no-setuptools", "--no-wheel")  # options of get-pip.py alone

# A process of its own: ensurepip makes pip forget its configuration file, and with it the index.
subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
arguments = [word for word in sys.argv[1:] if word not in NOT_FOR_PIP]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"] + arguments))
