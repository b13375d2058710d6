/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader of Prometheus' text format, for tests: every rule that promtool or the node exporter's collector holds, and
 * a few more of ours (HELP and TYPE before the samples, families in one piece, no sample twice). */
#pragma once

#include <glib.h>

typedef struct {
  GHashTable *samples;  /* "name{labels}" → double * */
  GHashTable *families; /* name → type */
} Prom;

/* NULL, and *WHY, where the text breaks a rule. */
Prom *prom_parse(const char *text, char **why);
void prom_free(Prom *prom);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Prom, prom_free)

/* NAN where there is none. */
double prom_value(const Prom *prom, const char *sample);
/* Is NAME that of samples of a family (with _bucket, _sum, _count of a histogram)? */
gboolean prom_has(const Prom *prom, const char *name);
