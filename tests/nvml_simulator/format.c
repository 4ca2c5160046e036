/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool parse_pci(const char *text, struct gpu *gpu)
{
    unsigned int domain = 0, bus, device, function = 0;
    int used = 0;
    if (sscanf(text, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &used) != 4 || text[used]) {
        function = used = 0;
        if (sscanf(text, "%x:%x:%x%n", &domain, &bus, &device, &used) != 3 || text[used]) {
            domain = function = used = 0;
            if (sscanf(text, "%x:%x.%x%n", &bus, &device, &function, &used) != 3 || text[used])
                return false;
        }
    }
    if (bus > 0xff || device > 0x1f || function > 7)
        return false;
    gpu->domain = domain;
    gpu->bus = bus;
    gpu->device = device;
    gpu->function = function;
    return true;
}

int compare_pci(const struct gpu *one, const struct gpu *other)
{
    const uint64_t a = (uint64_t)one->domain << 32 | one->bus << 16 | one->device << 8 | one->function;
    const uint64_t b = (uint64_t)other->domain << 32 | other->bus << 16 | other->device << 8 | other->function;
    return (a > b) - (a < b);
}

void format_pci(const struct gpu *gpu, char *text, size_t size)
{
    snprintf(text, size, "%04x:%02x:%02x.%x", gpu->domain, gpu->bus, gpu->device, gpu->function);
}

bool parse_list(const char *text, uint64_t mask[MASK_WORDS])
{
    memset(mask, 0, MASK_WORDS * sizeof *mask);
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (end == text)
            return false;
        if (*end == '-') {
            text = end + 1;
            last = strtoul(text, &end, 10);
            if (end == text)
                return false;
        }
        if (last < first || last >= MASK_BITS)
            return false;
        for (unsigned long bit = first; bit <= last; bit++)
            mask[bit / 64] |= 1ull << bit % 64;
        if (*end == ',')
            end++;
        else if (*end)
            return false;
        text = end;
    }
    return true;
}

static bool bit_set(const uint64_t mask[MASK_WORDS], int bit)
{
    return bit < MASK_BITS && mask[bit / 64] >> bit % 64 & 1;
}

void format_list(const uint64_t mask[MASK_WORDS], char *text, size_t size)
{
    size_t length = 0;
    *text = '\0';
    for (int bit = 0; bit < MASK_BITS; bit++) {
        if (!bit_set(mask, bit))
            continue;
        int last = bit;
        while (bit_set(mask, last + 1))
            last++;
        const char *comma = length ? "," : "";
        int written = bit == last ? snprintf(text + length, size - length, "%s%d", comma, bit)
                                  : snprintf(text + length, size - length, "%s%d-%d", comma, bit, last);
        length += (size_t)written;
        if (length >= size)
            return;
        bit = last;
    }
}

bool empty_mask(const uint64_t mask[MASK_WORDS])
{
    for (int i = 0; i < MASK_WORDS; i++)
        if (mask[i])
            return false;
    return true;
}

uint32_t cuda_version(const struct machine *machine)
{
    static const struct {
        unsigned long driver;
        uint32_t cuda;
    } releases[] = {
        {595, 13020}, {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080}, {565, 12070}, {560, 12060},
        {555, 12050}, {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010}, {525, 12000}, {520, 11080},
        {515, 11070}, {510, 11060}, {495, 11050}, {470, 11040}, {460, 11020}, {455, 11010}, {450, 11000},
    };
    unsigned long driver = strtoul(machine->library, NULL, 10);
    if (machine->cuda)
        return machine->cuda;
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++)
        if (driver >= releases[i].driver)
            return releases[i].cuda;
    return 10020;
}

const char *error_text(int code)
{
    static const struct {
        int code;
        const char *text;
    } texts[] = {
        {0, "Success"},
        {1, "Uninitialized"},
        {2, "Invalid Argument"},
        {3, "Not Supported"},
        {4, "Insufficient Permissions"},
        {5, "Already Initialized"},
        {6, "Not Found"},
        {7, "Insufficient Size"},
        {8, "Insufficient External Power"},
        {9, "Driver Not Loaded"},
        {10, "Timeout"},
        {11, "Interrupt Request Issue"},
        {12, "NVML Shared Library Not Found"},
        {13, "Function Not Found"},
        {14, "Corrupted infoROM"},
        {15, "GPU is lost"},
        {16, "GPU requires restart"},
        {17, "The operating system has blocked the request."},
        {18, "RM has detected an NVML/RM version mismatch."},
        {19, "In use by another client"},
        {20, "Insufficient Memory"},
        {21, "No data"},
        {23, "Insufficient Resources"},
        {25, "Argument version mismatch"},
        {26, "Deprecated"},
        {27, "Not Ready"},
        {28, "GPU not found"},
        {29, "Invalid state"},
        {30, "Reset type not supported"},
        {999, "Unknown Error"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return texts[i].text;
    return "Unknown Error";
}
