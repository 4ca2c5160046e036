/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* What is known of each board. How we know it: behaviour.c. */
#ifndef NVML_SIMULATOR_BOARDS_H
#define NVML_SIMULATOR_BOARDS_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers of nvmlDeviceArchitecture_t. */
enum architecture { VOLTA = 5, TURING = 6, AMPERE = 7, HOPPER = 9, BLACKWELL = 10 };

struct board {
    const char *key;
    const char *name;
    uint32_t pci_device;
    uint32_t pci_subsystem;
    enum architecture architecture;
    int major, minor;
    uint32_t brand;
    uint64_t memory_mib;
    uint32_t pcie_generation, pcie_width;
    bool mig;
    /* Its memory can be a NUMA node of the CPU. */
    bool coherent;
};

/* NULL for a name that is none. */
const struct board *board_find(const char *key);
/* One after the other; NULL at the end. */
const struct board *board_at(unsigned int number);

#endif
