/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The machine as JSON. */
#ifndef NVML_SIMULATOR_SHOW_H
#define NVML_SIMULATOR_SHOW_H

#include "state.h"

void show_machine(const struct machine *machine);
void show_log_entry(uint64_t number, const struct log_entry *entry);

#endif
