/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors with GError: capped file reads, whole writes, pipes and socket
 * pairs. Every descriptor made here is close-on-exec. */
#pragma once

#include <glib.h>

#include "base/io.h"

/* The whole file, at most CAP bytes, with a NUL behind it that *N does not
 * count. Over CAP is QV_ERROR_LIMIT; absent is QV_ERROR_NOT_FOUND; not a regular file is
 * QV_ERROR_FORMAT. Free with g_free. */
char *qv_fd_read_file(const char *path, gsize cap, gsize *n, GError **error);

/* The same of an open descriptor, from its position on; any kind of file. */
char *qv_fd_read_all(int fd, const char *name, gsize cap, gsize *n, GError **error);

/* All N bytes; NAME is for the error's text. */
gboolean qv_fd_write_all(int fd, const char *name, const void *bytes, gsize n, GError **error);

/* Writes PATH as one: a temporary file beside it, fsync, rename. */
gboolean qv_fd_write_file(const char *path, const void *bytes, gsize n, mode_t mode, GError **error);

/* 0, 1 and 2 are open from now on, as /dev/null where they were not: no other descriptor becomes one that somebody writes lines to. */
void qv_fd_open_standard(void);

/* pair[0] reads, pair[1] writes. */
gboolean qv_fd_pipe(int pair[2], GError **error);
/* A connected pair of unix stream sockets. */
gboolean qv_fd_socketpair(int pair[2], GError **error);

/* Sends FD, with one byte, through a unix stream socket. */
gboolean qv_fd_send(int socket, int fd, GError **error);
/* Takes what qv_fd_send sent: a close-on-exec descriptor, or -1 with errno (ENODATA: the end of the stream, or a byte without
 * one; EPROTO: more than one, or one for which there was no room). Of what is refused nothing stays open. */
int qv_fd_receive(int socket);

/* Removes PATH and all below it without following a link; absent is success. Does not
 * cross into a mounted file system: that is an error. */
gboolean qv_fd_remove_tree(const char *path, GError **error);
