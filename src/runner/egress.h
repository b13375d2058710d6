/* SPDX-License-Identifier: Apache-2.0 */
/* What the runner keeps of egress beside the jobs themselves: the settings, and
 * two folders of the state folder.
 *
 *   egress/<sandbox id>.sock   a job's relay (relay.h); left where its job process was killed
 *   tokens/<hash>          empty: a token with this hash may be in Valkey. Made before the token is
 *                          written, removed when it was taken back; a later start takes back what it finds
 */
#pragma once

#include "base/config.h"
#include "protocol/registries.h"
#include "queue/conn.h"

enum { QV_CA_PEM_BYTES_MAX = 512 * 1024 };

/* May a runner with these settings give jobs egress? Where REGISTRIES is not empty, QUAVON_SANDBOX_EGRESS_PROXY must
 * be the address of a proxy, and a backend of networks must have one. *CA_PEM takes the text of QUAVON_SANDBOX_CA_FILE, NULL where there is none.
 * QV_ERROR_POLICY and QV_ERROR_FORMAT name the variable. */
gboolean qv_egress_settings(const QvConfig *config, const QvRegistries *registries, char **ca_pem, GError **error);

/* Does the backend give its sandboxes a network of their own instead of a socket? */
gboolean qv_egress_by_network(const char *backend);

/* Makes both folders. */
gboolean qv_egress_prepare(const char *state_dir, GError **error);

/* Path of a job's socket. Free with g_free. */
char *qv_egress_socket_path(const char *state_dir, const char *sandbox_id);
/* Removes the socket of a job whose process is gone; SANDBOX_ID NULL: of all. */
void qv_egress_socket_sweep(const char *state_dir, const char *sandbox_id);

gboolean qv_egress_note_add(const char *state_dir, const char *hash, GError **error);
void qv_egress_note_remove(const char *state_dir, const char *hash);
/* Takes back every token that a note names, for as long as it takes; CONN must outlive it or be freed first. */
void qv_egress_note_sweep(QvConn *conn, const char *prefix, const char *state_dir);
