/*
 * Copyright (c) 2026 ai_infra.gpu_host contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#include "mig.h"

#include "boards.h"

bool mig_capable(const struct gpu *gpu)
{
    const struct board *board = board_find(gpu->board);
    return board && board->mig;
}

void mig_after_reset(struct gpu *gpu)
{
    gpu->mig.current = gpu->mig.pending;
}

/* The mode is kept on board by Ampere only; later generations start without. */
void mig_after_unload(struct gpu *gpu)
{
    const struct board *board = board_find(gpu->board);
    if (!board || board->architecture != AMPERE)
        gpu->mig.current = gpu->mig.pending = 0;
}

void mig_after_reboot(struct gpu *gpu)
{
    mig_after_unload(gpu);
    mig_after_reset(gpu);
}
