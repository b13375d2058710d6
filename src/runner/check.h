/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator runs by hand: --check and --sweep. Both print to stdout. */
#pragma once

#include "base/config.h"

/* A line for each thing that must hold; exit status. */
int qv_check_main(const QvConfig *config);
int qv_check_sweep_main(const QvConfig *config);
