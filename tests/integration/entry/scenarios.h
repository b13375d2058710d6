/* SPDX-License-Identifier: Apache-2.0 */
/* Each file of scenarios adds its tests; every one runs in the kind of sandbox that main chose. */
#pragma once

void add_step_scenarios(void);
void add_file_scenarios(void);
void add_hostile_scenarios(void);
void add_egress_scenarios(void);
