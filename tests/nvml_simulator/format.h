/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Texts and their values: PCI addresses, lists of CPUs and nodes, versions, error codes. */
#ifndef NVML_SIMULATOR_FORMAT_H
#define NVML_SIMULATOR_FORMAT_H

#include "state.h"

/* With or without a domain, with or without a function, any number of digits. */
bool parse_pci(const char *text, struct gpu *gpu);
int compare_pci(const struct gpu *one, const struct gpu *other);
/* As sysfs writes it. */
void format_pci(const struct gpu *gpu, char *text, size_t size);

bool parse_list(const char *text, uint64_t mask[MASK_WORDS]);
void format_list(const uint64_t mask[MASK_WORDS], char *text, size_t size);
bool empty_mask(const uint64_t mask[MASK_WORDS]);

/* What the machine was told, or what the release of its driver implies. */
uint32_t cuda_version(const struct machine *machine);
const char *error_text(int code);

#endif
