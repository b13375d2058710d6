/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of one job process: starts it, streams the sealed
 * input chunks from Valkey to it and the sealed payload chunks from it to
 * Valkey, and tells what it said. At most QV_CHUNKS_IN_MEMORY_MAX chunks a job
 * are anywhere between Valkey and the sandbox. */
#pragma once

#include <glib.h>

#include "queue/conn.h"
#include "runner/setup.h"
#include "runner/starter.h"

typedef struct QvJobLink QvJobLink;

/* What an owner wants to hear; NULL members are skipped. None may free the link but `exited`, which comes last and once. */
typedef struct {
  void (*started)(gpointer data);  /* the sandbox runs */
  void (*input_done)(gpointer data);
  void (*progress)(guint32 members, gpointer data); /* as PROGRESS of ipc.h */
  /* CODE: blob_missing, or what the job process said; TEXT for the log. */
  void (*trouble)(const char *code, const char *text, gpointer data);
  /* FACTS: as unpack wrote them, NULL where there are none. */
  void (*report)(const QvHostReport *host, GBytes *facts, gpointer data);
  void (*received)(gpointer data); /* all of the payload (or there is none) */
  void (*stored)(gpointer data);
  void (*store_failed)(const char *text, gpointer data);
  void (*gone)(const char *left, gpointer data); /* LEFT NULL: nothing is left of the sandbox */
  void (*exited)(gpointer data);                 /* reaped, and all that it had said was told */
} QvJobLinkEvents;

typedef struct {
  QvConn *conn;        /* borrowed */
  const char *prefix;  /* borrowed */
  int lock_fd;         /* borrowed: goes along so that a later runner waits */
  QvStarter *starter;  /* borrowed; NULL: the program is executed */
  const QvSetup *setup;
  const QvJobKeys *keys;
} QvJobLinkOptions;

QvJobLink *qv_job_link_new(const QvJobLinkOptions *options, const QvJobLinkEvents *events, gpointer data,
                           GError **error);
/* A job process whose sandbox is started before there is a job: it tells started, trouble, gone and exited
 * (also report, which then says nothing). */
typedef struct {
  QvConn *conn;        /* borrowed */
  const char *prefix;
  int lock_fd;
  QvStarter *starter;
  const QvWarmOrder *order;
} QvJobLinkWarmOptions;

QvJobLink *qv_job_link_new_warm(const QvJobLinkWarmOptions *options, const QvJobLinkEvents *events, gpointer data,
                                GError **error);
/* The job for it, once; SETUP's sandbox id, image and limits are those of the order. From now on EVENTS are told DATA. */
void qv_job_link_assign(QvJobLink *link, const QvSetup *setup, const QvJobKeys *keys, const QvJobLinkEvents *events,
                        gpointer data);
/* Kills and reaps the process where that is still to be done; one that does not end for that is left to the main loop. */
void qv_job_link_free(QvJobLink *link);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvJobLink, qv_job_link_free)

void qv_job_link_store(QvJobLink *link); /* payload chunks are welcome; `received` and `stored` follow */
void qv_job_link_stop(QvJobLink *link);
void qv_job_link_end_egress(QvJobLink *link); /* the job process cuts the sandbox's way to the proxy */
void qv_job_link_discard(QvJobLink *link);
void qv_job_link_kill(QvJobLink *link);
/* Sealed chunks of live logs that came so far, whether or not Valkey took them. */
guint qv_job_link_live_n(const QvJobLink *link);
/* The channel to the job process is there. */
gboolean qv_job_link_talks(const QvJobLink *link);
/* Payload chunks are on their way to Valkey: it is not the job process that keeps us waiting. */
gboolean qv_job_link_is_storing(const QvJobLink *link);
