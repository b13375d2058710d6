/* SPDX-License-Identifier: Apache-2.0 */
#include "support/valkey.h"

#include <arpa/inet.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS 60000

struct QvTestValkey {
  QvTestValkeyFlags flags;
  char *dir, *socket, *password, *ca_file;
  guint16 tcp_port, tls_port;
  GPid pid, remover;
  int remover_fd;
  GHashTable *urls;
  char **options; /* more arguments for the server, or NULL */
};

static void die_with_parent(gpointer user)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != GPOINTER_TO_INT(user))
    _exit(1);
}

static void own_session(gpointer unused)
{
  setsid();
}

/* A process that takes the folder away when it reads a line, or once nobody can write one any more: this program aborted. */
static void start_remover(QvTestValkey *v)
{
  const char *argv[] = { "sh", "-c", "read -r line; for i in $(seq 100); do rm -rf -- \"$0\" && exit 0; sleep 0.1; done; exit 1", v->dir, NULL };
  g_autoptr(GError) error = NULL;
  g_spawn_async_with_pipes("/", (char **)argv, NULL,
                           G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_CLOEXEC_PIPES | G_SPAWN_STDOUT_TO_DEV_NULL |
                             G_SPAWN_STDERR_TO_DEV_NULL,
                           own_session, NULL, &v->remover, &v->remover_fd, NULL, NULL, &error);
  g_assert_no_error(error);
}

static void end_remover(QvTestValkey *v)
{
  int status;
  g_assert_cmpint(write(v->remover_fd, "\n", 1), ==, 1);
  close(v->remover_fd);
  while (waitpid(v->remover, &status, 0) < 0)
    g_assert_cmpint(errno, ==, EINTR);
  g_spawn_close_pid(v->remover);
  g_assert_cmpint(status, ==, 0);
}

static char *hex_random(void)
{
  GString *s = g_string_new(NULL);
  for (int i = 0; i < 4; i++)
    g_string_append_printf(s, "%08x", g_random_int());
  return g_string_free(s, FALSE);
}

/* A port that was free a moment ago. Another program may take it before the server does: start() then tries again. */
static guint16 free_port(void)
{
  struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  socklen_t len = sizeof in;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(fd, >=, 0);
  g_assert_cmpint(bind(fd, (struct sockaddr *)&in, sizeof in), ==, 0);
  g_assert_cmpint(getsockname(fd, (struct sockaddr *)&in, &len), ==, 0);
  close(fd);
  return ntohs(in.sin_port);
}

static void run(const char *dir, const char *const *argv)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *err = NULL;
  int status;
  g_spawn_sync(dir, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &err, &status,
               &error);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("%s: %s: %s", argv[0], error->message, err);
}

static void make_certificates(QvTestValkey *v)
{
  g_autofree char *ext = g_build_filename(v->dir, "ext", NULL);
  g_assert_true(g_file_set_contents(ext, "subjectAltName=DNS:localhost,IP:127.0.0.1\n", -1, NULL));
  run(v->dir, (const char *[]){ "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                                "-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=Quavon test CA", NULL });
  run(v->dir, (const char *[]){ "openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                                "server.key", "-out", "server.csr", "-subj", "/CN=localhost", NULL });
  run(v->dir, (const char *[]){ "openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                                "-CAcreateserial", "-out", "server.pem", "-days", "30", "-extfile", "ext", NULL });
  v->ca_file = g_build_filename(v->dir, "ca.pem", NULL);
}

static void replace_all(GString *text, const char *token, const char *with)
{
  g_string_replace(text, token, with, 0);
}

static void write_acl(QvTestValkey *v)
{
  const char *root = g_getenv("QUAVON_SOURCE_ROOT");
  g_autofree char *shipped = g_build_filename(root ? root : ".", "deploy/valkey/users.acl", NULL);
  g_autofree char *text = NULL, *sha = g_compute_checksum_for_string(G_CHECKSUM_SHA256, v->password, -1);
  g_autoptr(GError) error = NULL;
  g_file_get_contents(shipped, &text, NULL, &error);
  g_assert_no_error(error);
  g_autoptr(GString) acl = g_string_new(text);
  replace_all(acl, "%WORKER_SHA256%", sha);
  replace_all(acl, "%SANDBOX_SHA256%", sha);
  replace_all(acl, "%EGRESS_SHA256%", sha);
  g_string_append_printf(acl, "user admin on #%s ~* &* +@all\n", sha);
  g_autofree char *path = g_build_filename(v->dir, "users.acl", NULL);
  g_assert_true(g_file_set_contents_full(path, acl->str, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL));
}

static gboolean answers(QvTestValkey *v)
{
  struct sockaddr_un un = { .sun_family = AF_UNIX };
  g_strlcpy(un.sun_path, v->socket, sizeof un.sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  char c = 0;
  gboolean ok = connect(fd, (struct sockaddr *)&un, sizeof un) == 0 && write(fd, "PING\r\n", 6) == 6 && read(fd, &c, 1) == 1;
  close(fd);
  return ok && c == '-'; /* NOAUTH: it serves and its default user is off */
}

static gboolean launch(QvTestValkey *v)
{
  g_autofree char *tcp = g_strdup_printf("%u", v->tcp_port), *tls = g_strdup_printf("%u", v->tls_port);
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  const char *base[] = { "valkey-server", "--port", tcp, "--bind", "127.0.0.1", "--unixsocket", v->socket, "--unixsocketperm",
                         "700", "--dir", v->dir, "--logfile", "server.log", "--aclfile", "users.acl", "--save", "",
                         "--maxmemory-policy", "noeviction", "--appendonly",
                         v->flags & QV_TEST_VALKEY_PERSIST ? "yes" : "no", "--appendfsync", "always" };
  for (gsize i = 0; i < G_N_ELEMENTS(base); i++)
    g_ptr_array_add(argv, (gpointer)base[i]);
  if (v->tls_port) {
    const char *more[] = { "--tls-port", tls, "--tls-cert-file", "server.pem", "--tls-key-file", "server.key",
                           "--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "no" };
    for (gsize i = 0; i < G_N_ELEMENTS(more); i++)
      g_ptr_array_add(argv, (gpointer)more[i]);
  }
  for (char **option = v->options; option && *option; option++)
    g_ptr_array_add(argv, *option);
  g_ptr_array_add(argv, NULL);
  g_autoptr(GError) error = NULL;
  g_spawn_async(v->dir, (char **)argv->pdata, NULL,
                G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL,
                die_with_parent, GINT_TO_POINTER(getpid()), &v->pid, &error);
  g_assert_no_error(error);
  for (gint64 end = g_get_monotonic_time() + READY_MS * 1000; g_get_monotonic_time() < end; g_usleep(10000)) {
    if (answers(v))
      return TRUE;
    if (waitpid(v->pid, NULL, WNOHANG) == v->pid) {
      v->pid = 0;
      return FALSE;
    }
  }
  return FALSE;
}

QvTestValkey *qv_test_valkey_start(QvTestValkeyFlags flags)
{
  QvTestValkey *v = g_new0(QvTestValkey, 1);
  v->flags = flags;
  v->dir = g_strdup("/tmp/qv-XXXXXX");
  g_assert_nonnull(g_mkdtemp(v->dir));
  start_remover(v);
  v->socket = g_build_filename(v->dir, "valkey.sock", NULL);
  v->password = hex_random();
  v->urls = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  write_acl(v);
  if (flags & QV_TEST_VALKEY_TLS)
    make_certificates(v);
  for (int tries = 0; tries < 20; tries++) {
    v->tcp_port = flags & QV_TEST_VALKEY_TCP ? free_port() : 0;
    v->tls_port = flags & QV_TEST_VALKEY_TLS ? free_port() : 0;
    if (launch(v))
      return v;
    qv_test_valkey_kill(v);
  }
  g_autofree char *log = g_build_filename(v->dir, "server.log", NULL), *text = NULL;
  g_file_get_contents(log, &text, NULL, NULL);
  g_error("valkey-server did not start: %s", text ? text : "(no log)");
}

void qv_test_valkey_kill(QvTestValkey *v)
{
  if (!v->pid)
    return;
  kill(v->pid, SIGKILL);
  while (waitpid(v->pid, NULL, 0) < 0 && errno == EINTR) {
  }
  g_spawn_close_pid(v->pid);
  v->pid = 0;
}

void qv_test_valkey_restart(QvTestValkey *v)
{
  g_assert_cmpint(v->pid, ==, 0);
  for (int tries = 0; tries < 20; tries++) {
    g_unlink(v->socket);
    if (launch(v))
      return;
    qv_test_valkey_kill(v);
    g_usleep(200000);
  }
  g_error("valkey-server did not start again in %s", v->dir);
}

void qv_test_valkey_set_options(QvTestValkey *v, const char *const *options)
{
  g_strfreev(v->options);
  v->options = g_strdupv((char **)options);
}

void qv_test_valkey_free(QvTestValkey *v)
{
  if (!v)
    return;
  qv_test_valkey_kill(v);
  end_remover(v);
  g_hash_table_unref(v->urls);
  g_free(v->dir);
  g_free(v->socket);
  g_free(v->password);
  g_free(v->ca_file);
  g_strfreev(v->options);
  g_free(v);
}

static const char *remember(QvTestValkey *v, char *url)
{
  g_hash_table_replace(v->urls, url, g_strdup(url));
  return url;
}

GPid qv_test_valkey_pid(const QvTestValkey *v)
{
  return v->pid;
}

const char *qv_test_valkey_dir(const QvTestValkey *v)
{
  return v->dir;
}

const char *qv_test_valkey_url(QvTestValkey *v, const char *user)
{
  return remember(v, g_strdup_printf("unix://%s:%s@%s", user, v->password, v->socket));
}

const char *qv_test_valkey_tcp_url(QvTestValkey *v, const char *user)
{
  g_assert_cmpint(v->tcp_port, !=, 0);
  return remember(v, g_strdup_printf("redis://%s:%s@127.0.0.1:%u", user, v->password, v->tcp_port));
}

const char *qv_test_valkey_tls_url(QvTestValkey *v, const char *user)
{
  g_assert_cmpint(v->tls_port, !=, 0);
  return remember(v, g_strdup_printf("rediss://%s:%s@localhost:%u", user, v->password, v->tls_port));
}

const char *qv_test_valkey_ca_file(const QvTestValkey *v)
{
  return v->ca_file;
}

const char *qv_test_valkey_password(const QvTestValkey *v)
{
  return v->password;
}

guint16 qv_test_valkey_port(const QvTestValkey *v)
{
  return v->tcp_port;
}

const char *qv_test_valkey_socket(const QvTestValkey *v)
{
  return v->socket;
}

char *qv_test_valkey_cli(QvTestValkey *v, ...)
{
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  const char *base[] = { "valkey-cli", "-s", v->socket, "--user", "admin", "--pass", v->password, "--no-auth-warning" };
  for (gsize i = 0; i < G_N_ELEMENTS(base); i++)
    g_ptr_array_add(argv, (gpointer)base[i]);
  va_list args;
  va_start(args, v);
  for (char *a; (a = va_arg(args, char *));)
    g_ptr_array_add(argv, a);
  va_end(args);
  g_ptr_array_add(argv, NULL);
  g_autoptr(GError) error = NULL;
  char *out = NULL;
  int status;
  g_spawn_sync("/", (char **)argv->pdata, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, NULL, &status, &error);
  g_assert_no_error(error);
  g_spawn_check_wait_status(status, &error);
  g_assert_no_error(error);
  return g_strchomp(out);
}
