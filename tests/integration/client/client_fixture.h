/* SPDX-License-Identifier: Apache-2.0 */
/* A Valkey, a folder with keys and a work tree, a client, and a peer that answers where one is asked for. */
#pragma once

#include <glib.h>

#include "client/quavon.h"
#include "peer.h"
#include "support/valkey.h"

extern const char fixture_digest[]; /* of the image that the healthy runner offers */

typedef struct {
  QvTestValkey *valkey;
  char *dir, *repo, *key, *other;
  GPtrArray *settings;
  QuavonClient *client;
  Peer *peer;
} Fixture;

/* DATA not NULL: with a peer. */
void fixture_set_up(Fixture *f, gconstpointer data);
void fixture_tear_down(Fixture *f, gconstpointer data);
/* A setting, for who opens next. */
void fixture_set(Fixture *f, const char *name, const char *value);
QuavonClient *fixture_open(Fixture *f);

/* MODE: what the peer does, see peer.h. */
QuavonJob *fixture_job(const Fixture *f, const char *mode);
void fixture_submit(Fixture *f, const char *mode, char job_id[QUAVON_JOB_ID_SIZE]);
QuavonResult *fixture_run(Fixture *f, const char *mode);

void fixture_expect(QuavonError **error, QuavonErrorCode code, const char *text);
/* Names of keys that match, of the whole server. */
char *fixture_keys(Fixture *f, const char *pattern);

typedef struct {
  guint calls, stages; /* bits */
  int answer;
  QuavonStage answer_from;
} Watch;

int fixture_watch(const QuavonProgress *progress, void *data);
