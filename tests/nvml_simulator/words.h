/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* The words with which nvml-simctl describes and changes a machine: KEY=VALUE, those after `gpu` for one GPU. */
#ifndef NVML_SIMULATOR_WORDS_H
#define NVML_SIMULATOR_WORDS_H

#include "state.h"

/* Both answer NULL, or what is wrong with the word. */
const char *machine_word(struct machine *machine, const char *word);
const char *gpu_word(struct gpu *gpu, const char *word);

/* A GPU as it is before any word, and the last touch once all were read. */
void gpu_defaults(struct gpu *gpu);
const char *machine_finish(struct machine *machine);

/* Index as NVML counts, UUID or PCI id; -1 when there is none. */
int find_gpu(const struct machine *machine, const char *name);

/* Every key of either kind with its values, for the usage text; NULL at the end. */
const char *machine_key_at(unsigned int number);
const char *gpu_key_at(unsigned int number);

extern const char *const presence_names[], *const compute_names[], *const virtualization_names[],
    *const process_names[];
/* Place of a name in such a list, -1 when it is not there. */
int name_index(const char *const *names, const char *name);

#endif
