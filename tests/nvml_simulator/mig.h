/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* MIG as the driver keeps it. The calls of the library that change it build on this. */
#ifndef NVML_SIMULATOR_MIG_H
#define NVML_SIMULATOR_MIG_H

#include "state.h"

bool mig_capable(const struct gpu *gpu);
void mig_after_reset(struct gpu *gpu);
void mig_after_unload(struct gpu *gpu);
void mig_after_reboot(struct gpu *gpu);

#endif
