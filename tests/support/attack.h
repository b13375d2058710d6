/* SPDX-License-Identifier: Apache-2.0 */
/* Attack corpora: transcripts of what an attacker writes, and the verdict that must be
 * reached. The commands that make a tar are here; the head of each corpus in tests/attack says what there is. */
#pragma once

#include <glib.h>

typedef struct {
  char *name;
  char *with;       /* "with" lines, joined by blanks */
  GPtrArray *lines; /* of char *: the commands */
  char *verdict;    /* what stands behind "= " */
} Attack;

/* The attacks of tests/attack/NAME. At least ATTACKS_MIN. */
GPtrArray *attack_load(const char *name, guint attacks_min);

/* A command that is not one of the common ones. */
typedef void (*AttackCommand)(const char *command, const char *arguments, GByteArray *bytes, gpointer data);

/* Appends to BYTES what the attack writes. */
void attack_play(const Attack *attack, GByteArray *bytes, AttackCommand more, gpointer data);

/* The bytes of TEXT: \n \0 \xHH \\ undone, ' is ". */
GByteArray *attack_unescape(const char *text);

/* A member with any name, also one that no writer would write. */
void attack_put_member(GByteArray *bytes, const char *path, const void *data, gsize n);

/* Adds a test for each attack below PATH. */
void attack_add_tests(GPtrArray *attacks, const char *path, void (*test)(gconstpointer attack));
