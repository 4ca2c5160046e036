/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* What the simulator does as a GPU's driver does it, and how we know. */
#ifndef NVML_SIMULATOR_BEHAVIOUR_H
#define NVML_SIMULATOR_BEHAVIOUR_H

/* Prints the table, or only the rows of one origin: source, doc, report or assumed. */
int show_behaviour(const char *origin);

#endif
