/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the datagram. The address is read at each call: a test, or an exec, may change it. Abstract names begin with @. */
#include "base/notify.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/io.h"

static gboolean address_of(const char *name, struct sockaddr_un *address, socklen_t *n)
{
  gsize length = strlen(name);
  if ((name[0] != '/' && name[0] != '@') || length < 2 || length >= sizeof address->sun_path)
    return FALSE;
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  memcpy(address->sun_path, name, length);
  if (name[0] == '@')
    address->sun_path[0] = '\0';
  *n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (name[0] == '/'));
  return TRUE;
}

gboolean qv_notify(const char *state)
{
  const char *name = g_getenv("NOTIFY_SOCKET");
  struct sockaddr_un address;
  socklen_t n;
  if (name == NULL || !address_of(name, &address, &n))
    return FALSE;
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return FALSE;
  ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&address, n);
  return sent == (ssize_t)strlen(state);
}

gboolean qv_notify_reloading(void)
{
  g_autofree char *state = g_strdup_printf("RELOADING=1\nMONOTONIC_USEC=%" G_GINT64_FORMAT, g_get_monotonic_time());
  return qv_notify(state);
}

guint qv_notify_watchdog_ms(void)
{
  const char *period = g_getenv("WATCHDOG_USEC");
  const char *pid = g_getenv("WATCHDOG_PID");
  guint64 period_us = 0, watched = 0;
  if (period == NULL || !g_ascii_string_to_unsigned(period, 10, 1000, G_MAXUINT32 * 1000ull, &period_us, NULL))
    return 0;
  if (pid != NULL &&
      (!g_ascii_string_to_unsigned(pid, 10, 1, G_MAXINT32, &watched, NULL) || (pid_t)watched != getpid()))
    return 0;
  return (guint)(period_us / 1000);
}
