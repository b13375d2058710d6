/* SPDX-License-Identifier: Apache-2.0 */
/* The Docker Engine's HTTP API over its unix socket: one request, one answer,
 * each with a deadline. libcurl's only door; it is loaded at the first call. Knows
 * nothing of containers; the attach stream is docker_attach.h's.
 *
 * Source: Docker Engine API 1.43 (error answers: {"message": …}). */
#pragma once

#include <glib.h>
#include <jansson.h>

typedef struct QvEngine QvEngine;
typedef struct QvEngineCall QvEngineCall;

/* Longest answer that is kept, bytes. Over it the call fails (QV_ERROR_LIMIT). */
#define QV_ENGINE_ANSWER_BYTES_MAX ((gsize)4 * 1024 * 1024)

typedef struct {
  const char *method; /* "GET", "POST", "DELETE" */
  const char *path;   /* "/containers/…", without the version; the query is part of it, already escaped */
  const char *body;   /* JSON, NULL: none */
  int upload_fd;      /* > 0: the body is this file, a tar, up to its end. Not taken */
  guint deadline_ms;  /* 0: none, for calls that wait */
} QvEngineRequest;

typedef struct {
  long status;
  json_t *json; /* NULL: no body, or none that is JSON */
  char *text;   /* of the body; "" when there was none */
} QvEngineAnswer;

void qv_engine_answer_clear(QvEngineAnswer *answer);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvEngineAnswer, qv_engine_answer_clear)

/* Where an engine of this host listens when nobody says otherwise. */
const char *qv_engine_usual_socket(void);
/* Loads libcurl; the first call does it too. QV_ERROR_POLICY. To be asked before qv_engine_begin where nothing was called. */
gboolean qv_engine_load(GError **error);
/* SOCKET: absolute path. Connects to nothing yet. */
QvEngine *qv_engine_new(const char *socket);
void qv_engine_free(QvEngine *engine);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvEngine, qv_engine_free)
const char *qv_engine_socket(const QvEngine *engine);
/* "1.43": every later path begins with it. Without one the engine's newest is meant. */
void qv_engine_set_api(QvEngine *engine, const char *version);
const char *qv_engine_api(const QvEngine *engine); /* "" when none was set */

/* Blocks until the answer, at most the deadline. FALSE: no answer came; QV_ERROR_GONE (no engine, lost), QV_ERROR_TIMEOUT,
 * QV_ERROR_POLICY (no libcurl), QV_ERROR_AUTH (the socket is not ours to use: names its group), QV_ERROR_LIMIT. Any status is an answer. */
gboolean qv_engine_call(QvEngine *engine, const QvEngineRequest *request, QvEngineAnswer *answer, GError **error);
/* The same, and a status that is not WANTED (200 also stands for 201 and 204) is an error with the engine's words:
 * 404 QV_ERROR_NOT_FOUND, else QV_ERROR_PEER. ANSWER may be NULL. */
gboolean qv_engine_do(QvEngine *engine, const QvEngineRequest *request, QvEngineAnswer *answer, GError **error);

/* Why an answer is no success; FALSE and *ERROR set, or TRUE. WHAT is for the text. */
gboolean qv_engine_answer_check(const QvEngineAnswer *answer, const char *what, GError **error);

/* What GET /version says, with a Version and an ApiVersion: json_decref. NULL: as qv_engine_call, and QV_ERROR_GONE with the socket's
 * name where whoever answers there is no Docker Engine. An engine that is named is asked this first: what it has not is a 404, and
 * so is everything at somebody else's socket. */
json_t *qv_engine_greet(QvEngine *engine, guint deadline_ms, GError **error);

typedef struct {
  /* The head of the answer is there; may be NULL. */
  void (*head)(QvEngineCall *call, long status, gpointer data);
  /* A line of the body, without LF, as it comes (a stream of JSON lines); NULL: the body is kept for `done`. */
  void (*line)(QvEngineCall *call, const char *line, gsize n, gpointer data);
  /* Exactly once unless cancelled; the call is freed behind it. ANSWER is NULL with an ERROR. */
  void (*done)(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data);
} QvEngineEvents;

/* The same without blocking; events come from the thread's default context at the time of the first call. */
QvEngineCall *qv_engine_begin(QvEngine *engine, const QvEngineRequest *request, const QvEngineEvents *events, gpointer data);
/* No event comes any more. NULL is fine. */
void qv_engine_cancel(QvEngineCall *call);

/* Blocks until CALL, with NULL every call of ENGINE, is over, or UNTIL_MS (monotonic) is; the events of all come from here. */
void qv_engine_finish(QvEngine *engine, const QvEngineCall *call, gint64 until_ms);

/* Percent-escapes a value for a query. Free with g_free. */
char *qv_engine_escape(const char *text);
