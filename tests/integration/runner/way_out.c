/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what way_out.h describes. */
#include "way_out.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { CONNECT_MS = 15000 };

static void before_exec(gpointer log_file)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int fd = open(log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, 2);
  close(fd);
}

static GPid start(World *world, const char *const *argv, char **environment)
{
  GPid pid;
  g_autoptr(GError) error = NULL;
  if (!g_spawn_async(NULL, (char **)argv, environment, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL,
                     before_exec, world->log_file, &pid, &error))
    g_error("%s: %s", argv[0], error->message);
  return pid;
}

void way_out_stop(GPid pid)
{
  kill(pid, SIGTERM);
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while (waitpid(pid, NULL, WNOHANG) == 0) {
    if (qv_clock_mono_ms() > end)
      kill(pid, SIGKILL);
    g_usleep(10000);
  }
}

static gboolean listens_unix(const char *path)
{
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  g_strlcpy(un.sun_path, path, sizeof un.sun_path);
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return connect(fd, (struct sockaddr *)&un, sizeof un) == 0;
}

static void await(World *world, GPid pid, gboolean (*ready)(const char *), const char *what)
{
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while (!ready(what)) {
    if (qv_clock_mono_ms() > end || waitpid(pid, NULL, WNOHANG) != 0) {
      g_autofree char *log = world_log(world);
      g_error("nobody listens at %s; the log: %s", what, log);
    }
    g_usleep(20000);
  }
}

static gboolean is_there(const char *path)
{
  return g_file_test(path, G_FILE_TEST_EXISTS);
}

GPid way_out_spawn(World *world, const char *const *argv, const char *ready)
{
  GPid pid = start(world, argv, NULL);
  await(world, pid, is_there, ready);
  return pid;
}

char *way_out_start_proxy_with(World *world, const char *registries, const char *hosts_file, GPid *pid)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "egress", "quavon-sandbox-egress", NULL);
  g_autofree char *path = g_build_filename(world->dir, "egress.sock", NULL);
  g_autofree char *url = g_strconcat(
    "VALKEY_URL=", world->egress_url != NULL ? world->egress_url : qv_test_valkey_url(world->valkey, "egress"), NULL);
  g_autofree char *listen = g_strconcat("QUAVON_EGRESS_LISTEN=unix:", path, NULL);
  g_autofree char *list = g_strconcat("QUAVON_SANDBOX_REGISTRIES=", registries, NULL);
  /* A client in a sandbox on a busy machine takes its time for a ClientHello. */
  const char *extra[] = {url, listen, list, "QUAVON_EGRESS_HEAD_MS=300000", "QUAVON_EGRESS_CONNECT_MS=120000", NULL};
  g_auto(GStrv) environment = world_environment(world, extra);
  /* A file of names is the proxy's alone. */
  static const char enter[] = "mount --bind \"$1\" /etc/hosts && exec \"$0\"";
  const char *argv[] = {program, NULL}, *with_hosts[] = {"unshare", "--mount", "/bin/sh", "-c", enter, program, hosts_file, NULL};
  *pid = start(world, hosts_file != NULL ? with_hosts : argv, environment);
  await(world, *pid, listens_unix, path);
  return g_steal_pointer(&path);
}

char *way_out_start_proxy(World *world, const char *registries, GPid *pid)
{
  return way_out_start_proxy_with(world, registries, NULL, pid);
}

/* ---- the machine's registries */

void way_out_clear(WayOut *out)
{
  g_free(out->url);
  g_free(out->host_port);
  g_free(out->registries);
  *out = (WayOut){0};
}

static gboolean accepts(const struct addrinfo *at)
{
  QV_AUTOFD int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || (connect(fd, at->ai_addr, at->ai_addrlen) != 0 && errno != EINPROGRESS))
    return FALSE;
  struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
  int err = 0;
  socklen_t n = sizeof err;
  return poll(&poll_fd, 1, CONNECT_MS) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) == 0 && err == 0;
}

static gboolean skip(const char *why)
{
  g_test_skip(why);
  return FALSE;
}

gboolean way_out_find(const char *url, WayOut *out)
{
  g_autoptr(GUri) uri = g_uri_parse(url, G_URI_FLAGS_NONE, NULL);
  if (uri == NULL || strcmp(g_uri_get_scheme(uri), "https") != 0)
    return skip("the registry that this machine's client is set to is not https");
  int number = g_uri_get_port(uri) > 0 ? g_uri_get_port(uri) : 443;
  g_autofree char *port = g_strdup_printf("%d", number);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(g_uri_get_host(uri), port, &hints, &found) != 0)
    return skip("the registry's name has no address here");
  gboolean reached = FALSE;
  g_autoptr(GString) list = g_string_new(NULL);
  for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
    char address[64];
    reached = reached || accepts(at);
    if (getnameinfo(at->ai_addr, at->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST) == 0)
      g_string_append_printf(list, "%s%s:%d@%s", list->len > 0 ? "," : "", g_uri_get_host(uri), number, address);
  }
  freeaddrinfo(found);
  if (!reached)
    return skip("the registry that this machine's client is set to cannot be reached");
  g_autofree char *host_port = g_strdup_printf("%s:%d", g_uri_get_host(uri), number);
  *out = (WayOut){.url = g_strdup(url), .host_port = g_ascii_strdown(host_port, -1), .registries = g_strdup(list->str)};
  return TRUE;
}

const char *way_out_ca_file(void)
{
  const char *places[] = {g_getenv("NODE_EXTRA_CA_CERTS"), g_getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt"};
  for (gsize i = 0; i < G_N_ELEMENTS(places); i++) {
    if (places[i] != NULL && g_file_test(places[i], G_FILE_TEST_IS_REGULAR))
      return places[i];
  }
  return NULL;
}

/* ---- a registry of our own */

static const char server[] =
  "import functools, http.server, os, ssl, sys\n"
  "folder, pem, port_file = sys.argv[1:]\n"
  "handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)\n"
  "httpd = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)\n"
  "context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
  "context.load_cert_chain(pem)\n"
  "httpd.socket = context.wrap_socket(httpd.socket, server_side=True)\n"
  "with open(port_file + '.new', 'w') as f: f.write(str(httpd.server_address[1]))\n"
  "os.rename(port_file + '.new', port_file)\n"
  "httpd.serve_forever()\n";

static const char certificates[] =
  "set -e; cd \"$1\"\n"
  "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 -subj '/CN=test CA'\n"
  "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=localhost\n"
  "printf 'subjectAltName=DNS:localhost,DNS:" WAY_OUT_REGISTRY "\\nkeyUsage=digitalSignature\\nextendedKeyUsage=serverAuth\\n' > ext\n"
  "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out server.crt\n"
  "cat server.crt server.key > server.pem\n";

static void make_certificates(World *world)
{
  g_autofree char *complaint = NULL;
  g_autoptr(GError) error = NULL;
  int status = 0;
  const char *make[] = {"/bin/sh", "-c", certificates, "sh", world->dir, NULL};
  g_spawn_sync(NULL, (char **)make, NULL, 0, NULL, NULL, NULL, &complaint, &status, &error);
  if (!g_spawn_check_wait_status(status, NULL))
    g_error("certificates: %s", complaint);
}

/* Starts ARGV and waits for its port. */
static guint16 serve(World *world, const char *const *argv, const char *port_file, char **ca_file, GPid *pid)
{
  *pid = way_out_spawn(world, argv, port_file);
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(port_file, &text, NULL, NULL));
  *ca_file = g_build_filename(world->dir, "ca.pem", NULL);
  return (guint16)g_ascii_strtoull(text, NULL, 10);
}

guint16 way_out_serve(World *world, const char *folder, char **ca_file, GPid *pid)
{
  make_certificates(world);
  g_autofree char *pem = g_build_filename(world->dir, "server.pem", NULL);
  g_autofree char *port_file = g_build_filename(world->dir, "port", NULL);
  const char *argv[] = {"python3", "-c", server, folder, pem, port_file, NULL};
  return serve(world, argv, port_file, ca_file, pid);
}

guint16 way_out_serve_registry(World *world, const char *folder, char **ca_file, GPid *pid)
{
  make_certificates(world);
  g_autofree char *pem = g_build_filename(world->dir, "server.pem", NULL);
  g_autofree char *port_file = g_build_filename(folder, "port", NULL);
  g_autofree char *program =
    g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "integration", "runner", "clients", "registry.py", NULL);
  const char *argv[] = {"python3", program, folder, pem, WAY_OUT_REGISTRY, NULL};
  return serve(world, argv, port_file, ca_file, pid);
}
