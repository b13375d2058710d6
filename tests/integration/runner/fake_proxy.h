/* SPDX-License-Identifier: Apache-2.0 */
/* A proxy of few words, for tests of the way to it: it takes a CONNECT on a unix
 * socket, remembers the token, and either refuses or echoes. It never ends a tunnel by
 * itself and never looks at Valkey: what ends here was ended by the runner, or by the test. */
#pragma once

#include <glib.h>

typedef struct FakeProxy FakeProxy;

FakeProxy *fake_proxy_start(const char *folder);
/* Ends its threads; every tunnel must be over. */
void fake_proxy_free(FakeProxy *proxy);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(FakeProxy, fake_proxy_free)

const char *fake_proxy_path(const FakeProxy *proxy);
/* Tunnels open now, tunnels ever. */
guint fake_proxy_open_n(FakeProxy *proxy);
guint fake_proxy_seen_n(FakeProxy *proxy);
/* Ends the tunnel that was opened last. */
void fake_proxy_end_newest(FakeProxy *proxy);
/* Hex SHA-256 of the last token that came. */
char *fake_proxy_token_hash(FakeProxy *proxy);
