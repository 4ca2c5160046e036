# Copyright (c) 2026 ai_infra.gpu_host contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one adapter between our code and Ansible. Private: may change at any time."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean

from ._errors import BadInput, GpuHostError
from ._host import Host

CONSTRAINTS = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")


def run_module(knob):
    """Run a knob (an object with ARGUMENT_SPEC and run) as an Ansible module. Ends the process."""
    constraints = {name: getattr(knob, name.upper()) for name in CONSTRAINTS if hasattr(knob, name.upper())}
    module = AnsibleModule(argument_spec=knob.ARGUMENT_SPEC, supports_check_mode=True, **constraints)
    host = Host()
    host.pynvml_path = module.params.get("pynvml_path")
    try:
        result = knob.run(host, module.params, module.check_mode)
    except GpuHostError as err:
        module.fail_json(msg=str(err), **err.details)
    for warning in result.pop("warnings", ()):
        module.warn(warning)
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)


def validate(name, knob, params):
    """Parameters of a knob as its own module would take them, defaults filled in. Raises BadInput."""
    constraints = {word: getattr(knob, word.upper()) for word in CONSTRAINTS if hasattr(knob, word.upper())}
    checked = ArgumentSpecValidator(knob.ARGUMENT_SPEC, **constraints).validate(params)
    if checked.error_messages:
        raise BadInput("use the parameters of", name, "; ".join(checked.error_messages),
                       "See ansible-doc ai_infra.gpu_host.%s" % name)
    return checked.validated_parameters


def is_true(name, value):
    """A truth value in any of the spellings Ansible takes. Raises BadInput."""
    try:
        return boolean(value)
    except TypeError as err:
        raise BadInput("use", name, str(err), "Give true or false")
