/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that accepts, and one more for each connection: threads are joined at the end, so
 * that nothing of a test outlives it. */
#include "fake_proxy.h"

#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/egress_token.h"

struct FakeProxy {
  char *path;
  int listener;
  GThread *thread;
  GMutex lock;
  GPtrArray *threads;
  guint seen_n;
  GArray *open; /* of int: the tunnels' sockets, oldest first */
  char hash[65];
};

typedef struct {
  FakeProxy *proxy;
  int fd;
} Conn;

static void note_token(FakeProxy *proxy, const char *head)
{
  static const char name[] = "Proxy-Authorization: Basic ";
  const char *at = strstr(head, name);
  if (at == NULL)
    return;
  g_autofree char *text = g_strndup(at + strlen(name), strcspn(at + strlen(name), "\r"));
  gsize n;
  g_autofree guchar *login = g_base64_decode(text, &n);
  g_autofree char *whole = g_strndup((char *)login, n);
  const char *colon = strchr(whole, ':');
  g_mutex_lock(&proxy->lock);
  qv_token_hash(colon != NULL ? colon + 1 : "", proxy->hash);
  g_mutex_unlock(&proxy->lock);
}

static void echo(FakeProxy *proxy, int fd)
{
  static const char good[] = "HTTP/1.1 200 OK\r\n\r\n";
  char bytes[4096];
  ssize_t n;
  g_mutex_lock(&proxy->lock);
  g_array_append_val(proxy->open, fd);
  proxy->seen_n++;
  g_mutex_unlock(&proxy->lock);
  (void)!send(fd, good, sizeof good - 1, MSG_NOSIGNAL);
  while ((n = recv(fd, bytes, sizeof bytes, 0)) > 0)
    (void)!send(fd, bytes, (gsize)n, MSG_NOSIGNAL);
  g_mutex_lock(&proxy->lock);
  for (guint i = 0; i < proxy->open->len; i++) {
    if (g_array_index(proxy->open, int, i) == fd)
      g_array_remove_index(proxy->open, i--);
  }
  g_mutex_unlock(&proxy->lock);
}

static gpointer conn_main(gpointer data)
{
  g_autofree Conn *conn = data;
  g_autoptr(GString) head = g_string_new(NULL);
  char byte;
  while (strstr(head->str, "\r\n\r\n") == NULL && recv(conn->fd, &byte, 1, 0) == 1)
    g_string_append_c(head, byte);
  note_token(conn->proxy, head->str);
  static const char no[] = "HTTP/1.1 403 Forbidden\r\nQuavon-Reason: not_listed\r\nContent-Length: 3\r\n\r\nno\n";
  if (strstr(head->str, "CONNECT refused.example") != NULL)
    (void)!send(conn->fd, no, sizeof no - 1, MSG_NOSIGNAL);
  else if (strstr(head->str, "\r\n\r\n") != NULL)
    echo(conn->proxy, conn->fd);
  close(conn->fd);
  return NULL;
}

static gpointer accept_main(gpointer data)
{
  FakeProxy *proxy = data;
  int fd;
  while ((fd = accept(proxy->listener, NULL, NULL)) >= 0) {
    Conn *conn = g_new0(Conn, 1);
    *conn = (Conn){proxy, fd};
    g_ptr_array_add(proxy->threads, g_thread_new("conn", conn_main, conn));
  }
  return NULL;
}

FakeProxy *fake_proxy_start(const char *folder)
{
  FakeProxy *proxy = g_new0(FakeProxy, 1);
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  proxy->path = g_build_filename(folder, "proxy.sock", NULL);
  proxy->threads = g_ptr_array_new();
  proxy->open = g_array_new(FALSE, FALSE, sizeof(int));
  g_mutex_init(&proxy->lock);
  g_strlcpy(un.sun_path, proxy->path, sizeof un.sun_path);
  proxy->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(proxy->listener, (struct sockaddr *)&un, sizeof un), ==, 0);
  g_assert_cmpint(listen(proxy->listener, 128), ==, 0);
  proxy->thread = g_thread_new("proxy", accept_main, proxy);
  return proxy;
}

void fake_proxy_free(FakeProxy *proxy)
{
  if (proxy == NULL)
    return;
  shutdown(proxy->listener, SHUT_RDWR);
  g_thread_join(proxy->thread);
  for (guint i = 0; i < proxy->threads->len; i++)
    g_thread_join(proxy->threads->pdata[i]);
  g_ptr_array_unref(proxy->threads);
  g_array_unref(proxy->open);
  close(proxy->listener);
  g_unlink(proxy->path);
  g_mutex_clear(&proxy->lock);
  g_free(proxy->path);
  g_free(proxy);
}

const char *fake_proxy_path(const FakeProxy *proxy)
{
  return proxy->path;
}

guint fake_proxy_open_n(FakeProxy *proxy)
{
  g_mutex_lock(&proxy->lock);
  guint n = proxy->open->len;
  g_mutex_unlock(&proxy->lock);
  return n;
}

guint fake_proxy_seen_n(FakeProxy *proxy)
{
  g_mutex_lock(&proxy->lock);
  guint n = proxy->seen_n;
  g_mutex_unlock(&proxy->lock);
  return n;
}

void fake_proxy_end_newest(FakeProxy *proxy)
{
  g_mutex_lock(&proxy->lock);
  g_assert_cmpuint(proxy->open->len, >, 0);
  shutdown(g_array_index(proxy->open, int, proxy->open->len - 1), SHUT_RDWR);
  g_mutex_unlock(&proxy->lock);
}

char *fake_proxy_token_hash(FakeProxy *proxy)
{
  g_mutex_lock(&proxy->lock);
  char *hash = g_strdup(proxy->hash);
  g_mutex_unlock(&proxy->lock);
  return hash;
}
