/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "far.h"
#include "hello.h"
#include "protocol/egress_token.h"
#include "protocol/job.h"
#include "queue/subscriber.h"

struct World {
  QvTestValkey *valkey;
  QvTestProxy *relay; /* NULL: none */
  GPid proxy;
  char *log_path;
  QvAddress *address;
  QvSubscriber *usage;
  GHashTable *usages; /* hash to text */
  gboolean listening;
};

/* ---- the namespaces */

static void must(gboolean fine, const char *what)
{
  if (!fine)
    g_error("%s: %s", what, g_strerror(errno));
}

static void put_file(const char *over, const char *text)
{
  char path[] = "/tmp/qv-egress-XXXXXX";
  int fd = mkstemp(path);
  must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, 0644) == 0, path);
  close(fd);
  int target = open(over, O_RDONLY | O_CREAT, 0644);
  must(target >= 0, over);
  close(target);
  must(mount(path, over, NULL, MS_BIND, NULL) == 0, over);
  unlink(path);
}

static void add_address(int fd, int i, const char *address, const char *mask)
{
  struct ifreq request = {0};
  struct sockaddr_in *at = (struct sockaddr_in *)&request.ifr_addr;
  snprintf(request.ifr_name, sizeof request.ifr_name, i == 0 ? "lo" : "lo:%d", i);
  at->sin_family = AF_INET;
  at->sin_addr.s_addr = inet_addr(address);
  must(ioctl(fd, SIOCSIFADDR, &request) == 0, address);
  at->sin_addr.s_addr = inet_addr(mask);
  must(ioctl(fd, SIOCSIFNETMASK, &request) == 0, mask);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  must(ioctl(fd, SIOCSIFFLAGS, &request) == 0, "lo");
}

static void add_address6(const char *address)
{
  struct {
    struct in6_addr address;
    guint32 bits;
    int index;
  } request = {.bits = 128, .index = (int)if_nametoindex("lo")};
  int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  inet_pton(AF_INET6, address, &request.address);
  must(fd >= 0 && ioctl(fd, SIOCSIFADDR, &request) == 0, address);
  /* The kernel takes a moment before it may be used. */
  struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = request.address};
  for (guint i = 0; bind(fd, (struct sockaddr *)&at, sizeof at) != 0; i++) {
    must(i < QV_TEST_DEADLINE_S * 100, address);
    g_usleep(10000);
  }
  close(fd);
}

gboolean world_enter(void)
{
  if (geteuid() != 0 || unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) {
    printf("1..0 # SKIP needs root and namespaces of its own\n");
    return FALSE;
  }
  /* Thousands of tunnels have both their ends here. */
  struct rlimit files;
  must(getrlimit(RLIMIT_NOFILE, &files) == 0, "limit of files");
  files.rlim_cur = files.rlim_max;
  must(setrlimit(RLIMIT_NOFILE, &files) == 0, "limit of files");
  must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  must(fd >= 0, "socket");
  add_address(fd, 0, "127.0.0.1", "255.0.0.0");
  static const char *const more[] = {W_PUBLIC, "11.22.33.2", W_PRIVATE, "169.254.169.254", "100.64.0.1", "192.168.1.1"};
  for (guint i = 0; i < G_N_ELEMENTS(more); i++)
    add_address(fd, (int)i + 1, more[i], "255.255.255.255");
  close(fd);
  add_address6(W_PUBLIC6);
  add_address6("fd00::7");
  put_file("/etc/resolv.conf", "nameserver 127.0.0.1\nsearch search.example\noptions ndots:1\n");
  put_file("/etc/hosts", "127.0.0.1 localhost\n");
  put_file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
  far_start();
  return TRUE;
}

/* ---- the proxy */

char *world_log(const World *world)
{
  char *text = NULL;
  g_assert_true(g_file_get_contents(world->log_path, &text, NULL, NULL));
  return text;
}

static gboolean has_logged(const World *world, const char *part)
{
  g_autofree char *log = world_log(world);
  return strstr(log, part) != NULL;
}

void world_await_log(World *world, const char *part)
{
  QV_TEST_WAIT(has_logged(world, part));
}

static char *valkey_setting(World *world)
{
  if (world->relay == NULL)
    return g_strdup_printf("VALKEY_URL=%s", qv_test_valkey_url(world->valkey, "egress"));
  return g_strdup_printf("VALKEY_URL=unix://egress:%s@%s", qv_test_valkey_password(world->valkey), qv_test_proxy_socket(world->relay));
}

static void start_proxy(World *world, const char *const *environment)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src/egress/quavon-sandbox-egress", NULL);
  g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(all, valkey_setting(world));
  g_ptr_array_add(all, g_strdup_printf("QUAVON_EGRESS_LISTEN=127.0.0.1:%u,[::1]:%u", W_PROXY_PORT, W_PROXY_PORT));
  g_ptr_array_add(all, g_strdup("QUAVON_LOG_FORMAT=json"));
  g_ptr_array_add(all, g_strdup("QUAVON_LOG_LEVEL=debug"));
  static const char *const kept[] = {"ASAN_OPTIONS", "UBSAN_OPTIONS", "PATH", "G_DEBUG"};
  for (gsize i = 0; i < G_N_ELEMENTS(kept); i++)
    if (g_getenv(kept[i]) != NULL)
      g_ptr_array_add(all, g_strdup_printf("%s=%s", kept[i], g_getenv(kept[i])));
  for (; *environment != NULL; environment++)
    g_ptr_array_add(all, g_strdup(*environment));
  g_ptr_array_add(all, NULL);
  int log = open(world->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  must(log >= 0, world->log_path);
  world->proxy = fork();
  must(world->proxy >= 0, "fork");
  if (world->proxy == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDERR_FILENO);
    execle(program, program, NULL, (char **)all->pdata);
    _exit(127);
  }
  close(log);
  world_await_log(world, "\"listening\",\"at\":\"[::1]:");
  world_await_log(world, "connected to Valkey");
}

static gint by_text(gconstpointer a, gconstpointer b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void on_usage(const char *channel, const char *text, gsize len, gpointer user)
{
  World *world = user;
  g_autoptr(GError) error = NULL;
  QvResult result = {0};
  const char *at = strstr(text, "\"token\":\"");
  g_assert_nonnull(at);
  g_autofree char *hash = g_strndup(at + strlen("\"token\":\""), 64);
  g_assert_true(qv_token_usage_parse(text, len, hash, &result, &error));
  g_assert_no_error(error);
  g_autoptr(GPtrArray) rows = g_ptr_array_new_with_free_func(g_free);
  for (gsize i = 0; i < result.egress_n; i++) {
    const QvEgressUsage *row = &result.egress[i];
    g_ptr_array_add(rows, g_strdup_printf("%s %d %d %d %d\n", row->host, (int)row->connections, (int)row->bytes_up,
                                          (int)row->bytes_down, (int)row->refused));
    g_free(row->host);
  }
  g_free(result.egress);
  g_ptr_array_sort(rows, by_text);
  g_ptr_array_add(rows, NULL);
  g_hash_table_replace(world->usages, g_steal_pointer(&hash), g_strjoinv("", (char **)rows->pdata));
}

static void on_listening(gpointer user)
{
  ((World *)user)->listening = TRUE;
}

static World *world_start(const char *const *environment, gboolean relayed)
{
  static const QvSubscriberEvents events = {.message = on_usage, .ready = on_listening};
  static const char *const channels[] = {"quavon-sandbox:egress-usage", NULL};
  World *world = g_new0(World, 1);
  world->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PERSIST);
  if (relayed)
    world->relay = qv_test_proxy_start(qv_test_valkey_dir(world->valkey), qv_test_valkey_socket(world->valkey));
  world->log_path = g_build_filename(qv_test_valkey_dir(world->valkey), "proxy.log", NULL);
  world->usages = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  world->address = qv_address_parse(qv_test_valkey_url(world->valkey, "sandbox"), NULL);
  world->usage = qv_subscriber_new(world->address, NULL, channels, &events, world);
  QV_TEST_WAIT(world->listening);
  start_proxy(world, environment);
  return world;
}

World *world_new(const char *const *environment)
{
  return world_start(environment, FALSE);
}

World *world_new_relayed(const char *const *environment)
{
  return world_start(environment, TRUE);
}

QvTestProxy *world_relay(World *world)
{
  return world->relay;
}

int world_stop(World *world)
{
  int status = 0;
  if (world->proxy == 0)
    return -1;
  kill(world->proxy, SIGTERM);
  QV_TEST_WAIT(waitpid(world->proxy, &status, WNOHANG) == world->proxy);
  world->proxy = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void world_free(World *world)
{
  if (world->proxy != 0) {
    int status = world_stop(world);
    if (status != 0) {
      g_autofree char *log = world_log(world);
      g_error("the proxy ended with %d:\n%s", status, log);
    }
  }
  qv_subscriber_free(world->usage);
  qv_address_unref(world->address);
  g_hash_table_unref(world->usages);
  unlink(world->log_path);
  qv_test_proxy_free(world->relay);
  qv_test_valkey_free(world->valkey);
  g_free(world->log_path);
  g_free(world);
}

QvTestValkey *world_valkey(World *world)
{
  return world->valkey;
}

GPid world_proxy_pid(const World *world)
{
  return world->proxy;
}

/* ---- tokens */

char *world_token_hash(const char *token)
{
  char hex[65];
  qv_token_hash(token, hex);
  return g_strdup(hex);
}

char *world_token(World *world, const char *const *hosts, const char *source, gint64 life_ms)
{
  guint8 bytes[QV_TOKEN_BYTES];
  char token[QV_TOKEN_LEN + 1];
  gsize n;
  qv_random_bytes(bytes, sizeof bytes);
  qv_token_format(bytes, token);
  QvTokenRecord record = {.hosts = (char **)hosts, .source = (char *)source, .expires_at = qv_clock_unix_ms() + life_ms};
  qv_random_uuid(record.job_id);
  g_autofree char *text = qv_token_record_format(&record, &n);
  g_autofree char *hash = world_token_hash(token);
  g_autofree char *key = g_strconcat("quavon-sandbox:egress:", hash, NULL);
  g_autofree char *px = g_strdup_printf("%" G_GINT64_FORMAT, life_ms + 600000);
  g_autofree char *answer = qv_test_valkey_cli(world->valkey, "SET", key, text, "PX", px, NULL);
  g_assert_cmpstr(answer, ==, "OK");
  return g_strdup(token);
}

void world_revoke(World *world, const char *token, gboolean message)
{
  g_autofree char *hash = world_token_hash(token);
  g_autofree char *key = g_strconcat("quavon-sandbox:egress:", hash, NULL);
  g_autofree char *gone = qv_test_valkey_cli(world->valkey, "UNLINK", key, NULL);
  g_assert_cmpstr(gone, ==, "1");
  if (message)
    g_free(qv_test_valkey_cli(world->valkey, "PUBLISH", "quavon-sandbox:egress", hash, NULL));
}

char *world_usage(World *world, const char *token)
{
  g_autofree char *hash = world_token_hash(token);
  QV_TEST_WAIT(g_hash_table_contains(world->usages, hash));
  return g_strdup(g_hash_table_lookup(world->usages, hash));
}

/* ---- clients */

int world_connect(const World *world)
{
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(W_PROXY_PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const struct timeval patience = {.tv_sec = QV_TEST_DEADLINE_S};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect to the proxy");
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

void world_send(int fd, const void *bytes, gsize n)
{
  const char *at = bytes;
  while (n > 0) {
    ssize_t put = send(fd, at, n, MSG_NOSIGNAL);
    if (put <= 0)
      return; /* refused in the middle: the answer says why */
    at += put;
    n -= (gsize)put;
  }
}

/* 0: the end, or a reset. */
static gsize read_some(int fd, void *bytes, gsize n)
{
  ssize_t got = recv(fd, bytes, n, 0);
  if (got < 0 && errno == EAGAIN)
    g_error("waited %d s for the proxy", QV_TEST_DEADLINE_S);
  return got > 0 ? (gsize)got : 0;
}

gboolean world_read(int fd, void *bytes, gsize n)
{
  for (gsize at = 0; at < n;) {
    gsize got = read_some(fd, (char *)bytes + at, n - at);
    if (got == 0)
      return FALSE;
    at += got;
  }
  return TRUE;
}

char *world_head(int fd)
{
  GString *head = g_string_new(NULL);
  char c;
  while (!g_str_has_suffix(head->str, "\r\n\r\n") && world_read(fd, &c, 1))
    g_string_append_c(head, c);
  return g_string_free(head, FALSE);
}

gsize world_await_end(int fd)
{
  char bytes[4096];
  gsize sum = 0, n;
  while ((n = read_some(fd, bytes, sizeof bytes)) > 0)
    sum += n;
  return sum;
}

char *world_request(const char *target, const char *token)
{
  g_autofree char *login = token != NULL ? g_strconcat("job:", token, NULL) : NULL;
  g_autofree char *coded = token != NULL ? g_base64_encode((const guchar *)login, strlen(login)) : NULL;
  return g_strdup_printf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", target, target, token != NULL ? "Proxy-Authorization: Basic " : "",
                         token != NULL ? coded : "", token != NULL ? "\r\n" : "");
}

char *world_verdict(const char *head)
{
  if (!g_str_has_prefix(head, "HTTP/1.1 "))
    return g_strdup("");
  const char *reason = strstr(head, "\r\nQuavon-Reason: ");
  const char *from = reason != NULL ? reason + strlen("\r\nQuavon-Reason: ") : "";
  return g_strdup_printf("%.3s %.*s", head + 9, (int)strcspn(from, "\r"), from);
}

int world_tunnel(const World *world, const char *token)
{
  return world_tunnel_to(world, token, W_HOST, 443, FALSE);
}

int world_tunnel_to(const World *world, const char *token, const char *host, guint port, gboolean silent)
{
  int fd = world_connect(world);
  g_autofree char *target = g_strdup_printf("%s:%u", host, port);
  g_autofree char *request = world_request(target, token);
  world_send(fd, request, strlen(request));
  g_autofree char *head = world_head(fd);
  g_autofree char *verdict = world_verdict(head);
  g_assert_cmpstr(verdict, ==, "200 ");
  if (silent)
    return fd;
  g_autoptr(GByteArray) hello = t_hello(host);
  g_autofree guint8 *back = g_malloc(hello->len);
  world_send(fd, hello->data, hello->len);
  g_assert_true(world_read(fd, back, hello->len));
  g_assert_cmpmem(back, hello->len, hello->data, hello->len);
  return fd;
}

gboolean world_tunnel_lives(int fd)
{
  char back[W_LIFE_BYTES];
  world_send(fd, "still", sizeof back);
  return world_read(fd, back, sizeof back) && memcmp(back, "still", sizeof back) == 0;
}
