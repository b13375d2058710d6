/* SPDX-License-Identifier: Apache-2.0 */
/* Probes that use a limit up. Each returns the program's exit status. */
#pragma once

/* Forks until that fails: "probe forks <error>", then all children are gone. */
int qv_limit_forks(void);
/* Two processes compute for MS of wall clock. */
int qv_limit_burn(int ms);
/* Touches memory until something stops it; at most 1 GiB. */
int qv_limit_hog(void);
