/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "boards.h"

#include <stddef.h>
#include <string.h>

enum { TESLA = 2, NVIDIA_RTX = 13, NVIDIA = 14 };

static const struct board boards[] = {
    /* key, name, device, subsystem, architecture, capability, brand, MiB, PCIe, MIG, coherent */
    {"V100-SXM2-32GB", "Tesla V100-SXM2-32GB", 0x1db510de, 0x124910de, VOLTA, 7, 0, TESLA, 32768, 3, 16, false, false},
    {"T4", "Tesla T4", 0x1eb810de, 0x12a210de, TURING, 7, 5, TESLA, 15360, 3, 16, false, false},
    {"A30", "NVIDIA A30", 0x20b710de, 0x153210de, AMPERE, 8, 0, NVIDIA, 24576, 4, 16, true, false},
    {"A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 0x20b010de, 0x134f10de, AMPERE, 8, 0,
     NVIDIA, 40960, 4, 16, true, false},
    {"A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 0x20b210de, 0x146310de, AMPERE, 8, 0,
     NVIDIA, 81920, 4, 16, true, false},
    {"H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", 0x233010de, 0x16c110de, HOPPER, 9, 0,
     NVIDIA, 81559, 5, 16, true, false},
    {"H100-NVL", "NVIDIA H100 NVL", 0x232110de, 0x183910de, HOPPER, 9, 0, NVIDIA, 95830, 5, 16, true, false},
    {"H20", "NVIDIA H20", 0x232910de, 0x198b10de, HOPPER, 9, 0, NVIDIA, 97871, 5, 16, true, false},
    {"H200-SXM5-141GB", "NVIDIA H200", 0x233510de, 0x18be10de, HOPPER, 9, 0, NVIDIA, 143771, 5, 16, true, false},
    {"GH200-480GB", "NVIDIA GH200 480GB", 0x234210de, 0x16eb10de, HOPPER, 9, 0, NVIDIA, 97871, 5, 16, true, true},
    {"GH200-144GB", "NVIDIA GH200 144G HBM3e", 0x234810de, 0x18d210de, HOPPER, 9, 0, NVIDIA, 147456, 5, 16, true, true},
    {"B200", "NVIDIA B200", 0x290110de, 0x199910de, BLACKWELL, 10, 0, NVIDIA, 183359, 5, 16, true, false},
    {"GB200", "NVIDIA GB200", 0x294110de, 0x204610de, BLACKWELL, 10, 0, NVIDIA, 189471, 5, 16, true, true},
    {"RTX-PRO-6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 0x2bb510de, 0x204e10de, BLACKWELL, 12, 0,
     NVIDIA_RTX, 97887, 5, 16, true, false},
};

const struct board *board_find(const char *key)
{
    for (size_t i = 0; i < sizeof boards / sizeof *boards; i++)
        if (strcmp(boards[i].key, key) == 0)
            return &boards[i];
    return NULL;
}

const struct board *board_at(unsigned int number)
{
    return number < sizeof boards / sizeof *boards ? &boards[number] : NULL;
}
