/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration as a value, read once from an environment. base/config.def
 * is the only source of names, types, defaults and docs. */
#pragma once

#include <glib.h>

#include "base/secret.h"

typedef char *QvConfigTEXT;
typedef char *QvConfigPATH;
typedef char **QvConfigPATHS;
typedef gint64 QvConfigNUMBER;
typedef char *QvConfigCHOICE;
typedef QvSecret *QvConfigSECRET;

typedef struct {
#define QV_CONFIG(kind, field, name, standard, form, doc) QvConfig##kind field;
#include "base/config.def"
#undef QV_CONFIG
} QvConfig;

/* Reads NAME=value texts (NULL at the end, as environ has them). Names of ours
 * that are unknown, values that are not of the accepted form, a variable set twice as NAME and
 * NAME_FILE, and a secret's file that others may read are QV_ERROR_POLICY; the text
 * names the variable, the problem and the accepted form. An empty value counts as not set.
 * Exit status for a program that meets it: QV_EXIT_CONFIG (exit.h). */
QvConfig *qv_config_load(const char *const *environment, GError **error);
void qv_config_free(QvConfig *config);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvConfig, qv_config_free)

/* The images lock by name: images_file, below images in the state folder where it is
 * relative. Free with g_free. */
char *qv_config_images_file(const QvConfig *config);

/* The list of registries as one text, from the variable or its file; the empty text where neither is set.
 * Errors name the variable: POLICY where both are set, and those of reading a file. Free with g_free. */
char *qv_config_registries(const QvConfig *config, GError **error);

/* The prefix of the pool's keys (section 1): quavon-sandbox, or
 * quavon-sandbox-NAME. Free with g_free. */
char *qv_config_prefix(const char *pool);

/* The table as Markdown, for docs/CONFIGURATION.md. Free with g_free. */
char *qv_config_markdown(void);

/* The same as scdoc's paragraphs, for man/quavon-environment.7.scd. Free with g_free. */
char *qv_config_scdoc(void);

/* The table as rows for help texts and man pages; i from 0, FALSE past the end. */
typedef struct {
  const char *name;
  const char *standard; /* default, or NULL */
  const char *form;
  const char *doc;
  gboolean secret;
} QvConfigRow;
gboolean qv_config_row(guint i, QvConfigRow *row);
