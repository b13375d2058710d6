/* SPDX-License-Identifier: Apache-2.0 */
/* The end of setup with an engine and the real proxy. The entry ends what came through its forwarder; what is held here is a tunnel
 * of somebody who knows the token, beside the sandbox: nobody but runner and proxy can end it. So too where the engine falls
 * silent as it is asked to cut. The times are told where both tunnels lead to. */
#include <glib/gstdio.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "hello.h"
#include "support/proxy.h"
#include "way_job.h"
#include "way_out.h"

/* In setup: a tunnel through the forwarder to argv[1], and a ClientHello. Says `held` when the other end has said something. When
 * it is over: the same again and again, through forwarder and network. */
#define HOLDER \
  "import os, socket, ssl, sys, time\n" \
  "target, host = sys.argv[1], sys.argv[1].rsplit(':', 1)[0]\n" \
  "forwarder = ('127.0.0.1', int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1]))\n" \
  "def hello():\n" \
  "  out = ssl.MemoryBIO()\n" \
  "  try: ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=host).do_handshake()\n" \
  "  except ssl.SSLWantReadError: return out.read()\n" \
  "def dial(at):\n" \
  "  s = socket.create_connection(at, 3)\n" \
  "  s.sendall(('CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n' % (target, target)).encode())\n" \
  "  if b' 200 ' not in s.recv(4096): raise OSError\n" \
  "  s.sendall(hello())\n" \
  "  return s\n" \
  "s = dial(forwarder)\n" \
  "s.settimeout(None); s.recv(1)\n" \
  "print('held', flush=True)\n" \
  "try: s.recv(1)\n" \
  "except OSError: pass\n" \
  "while True:\n" \
  "  for at in (forwarder, ('10.89.213.1', 3128)):\n" \
  "    try: dial(at)\n" \
  "    except OSError: time.sleep(0.05)\n"

/* For so long the runner asks an engine that does not answer: a token that had to wait for that would outlive it. */
enum { CUT_MS = 10000 };
/* Of the second within which a token that is over is dead, five times. */
enum { OVER_MS = 5 * 1000 };

/* ---- where tunnels lead to */

typedef struct {
  GMutex mutex;
  int fd;
  gboolean spoken;  /* the ClientHello has come */
  gint64 ended_ms;  /* 0: not yet */
  GThread *thread;
} Arrival;

typedef struct {
  int listener;
  guint16 port;
  GThread *thread;
  GMutex mutex;
  GPtrArray *come; /* of Arrival */
} Far;

static gpointer arrival_main(gpointer data)
{
  Arrival *arrival = data;
  char bytes[4096];
  while (recv(arrival->fd, bytes, sizeof bytes, 0) > 0) {
    g_mutex_lock(&arrival->mutex);
    arrival->spoken = TRUE;
    g_mutex_unlock(&arrival->mutex);
  }
  g_mutex_lock(&arrival->mutex);
  arrival->ended_ms = qv_clock_mono_ms();
  g_mutex_unlock(&arrival->mutex);
  return NULL;
}

static void arrival_free(gpointer data)
{
  Arrival *arrival = data;
  shutdown(arrival->fd, SHUT_RDWR);
  g_thread_join(arrival->thread);
  close(arrival->fd);
  g_mutex_clear(&arrival->mutex);
  g_free(arrival);
}

static gpointer far_main(gpointer data)
{
  Far *far = data;
  int fd;
  while ((fd = accept4(far->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
    Arrival *arrival = g_new0(Arrival, 1);
    g_mutex_init(&arrival->mutex);
    arrival->fd = fd;
    arrival->thread = g_thread_new("arrival", arrival_main, arrival);
    g_mutex_lock(&far->mutex);
    g_ptr_array_add(far->come, arrival);
    g_mutex_unlock(&far->mutex);
  }
  return NULL;
}

static Far *far_start(void)
{
  Far *far = g_new0(Far, 1);
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof in;
  g_mutex_init(&far->mutex);
  far->come = g_ptr_array_new_with_free_func(arrival_free);
  far->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(far->listener, (struct sockaddr *)&in, sizeof in), ==, 0);
  g_assert_cmpint(listen(far->listener, 16), ==, 0);
  getsockname(far->listener, (struct sockaddr *)&in, &n);
  far->port = ntohs(in.sin_port);
  far->thread = g_thread_new("far", far_main, far);
  return far;
}

static void far_free(Far *far)
{
  shutdown(far->listener, SHUT_RDWR);
  g_thread_join(far->thread);
  close(far->listener);
  g_ptr_array_unref(far->come);
  g_mutex_clear(&far->mutex);
  g_free(far);
}

static guint far_come_n(Far *far)
{
  g_mutex_lock(&far->mutex);
  guint n = far->come->len;
  g_mutex_unlock(&far->mutex);
  return n;
}

static gboolean heard(Arrival *arrival)
{
  g_mutex_lock(&arrival->mutex);
  gboolean so = arrival->spoken || arrival->ended_ms != 0;
  g_mutex_unlock(&arrival->mutex);
  return so;
}

/* Waits for the connection I, and for its ClientHello. */
static Arrival *far_await(Far *far, guint i)
{
  AWAIT(far_come_n(far) > i);
  g_mutex_lock(&far->mutex);
  Arrival *arrival = g_ptr_array_index(far->come, i);
  g_mutex_unlock(&far->mutex);
  AWAIT(heard(arrival));
  return arrival;
}

static gint64 ended_ms(Arrival *arrival)
{
  g_mutex_lock(&arrival->mutex);
  gint64 ms = arrival->ended_ms;
  g_mutex_unlock(&arrival->mutex);
  return ms;
}

/* ---- */

static World *world;
static EngineWay *way;
static Far *far;
static char *registries, *proxy_socket;
static QvTestProxy *wire;   /* between the network's gateway and the proxy */
static QvTestProxy *engine; /* between the runner and the engine */

static void test_ready(void)
{
  g_auto(GStrv) own = engine_way_settings(way, (const char *const[]){registries, NULL});
  g_auto(GStrv) settings = way_job_jumping(world, (const char *const *)own);
  world_start(world, (const char *const *)settings);
  world_await_log(world, "runner is ready");
}

/* Its setup ends with a tunnel left open, when the other end has said something, and THEN; its run step does not end. */
static QvJob *holding_job(const char *then)
{
  g_autofree char *host_port = g_strdup_printf("localhost:%u", far->port);
  g_autofree char *setup = g_strdup_printf("setsid python3 hold.py %s >held 2>&1 &\nwhile ! grep -q held held; do sleep 0.1; done\n%s",
                                           host_port, then);
  return way_job_new(world, way, host_port, (const char *const[]){"hold.py", HOLDER, NULL}, setup, "echo begun; while :; do sleep 1; done");
}

/* Has a step printed something? Setup prints nothing. */
static gboolean has_begun(const QvJob *job)
{
  g_autofree char *key = g_strdup_printf("quavon-sandbox:blob:%s.live:n", job->job_id);
  return world_key_exists(world, key);
}

/* A tunnel with what the forwarder said, token and all. */
static int tunnel_beside(void)
{
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  g_strlcpy(un.sun_path, proxy_socket, sizeof un.sun_path);
  g_autofree char *head = qv_test_proxy_first_words(wire);
  g_assert_nonnull(strstr(head, "\r\nProxy-Authorization: Basic "));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(connect(fd, (struct sockaddr *)&un, sizeof un), ==, 0);
  char answer[512] = "";
  g_assert_cmpint(send(fd, head, strlen(head), MSG_NOSIGNAL), ==, strlen(head));
  g_assert_cmpint(recv(fd, answer, sizeof answer - 1, 0), >, 0);
  g_assert_true(g_str_has_prefix(answer, "HTTP/1.1 200 "));
  g_autoptr(GByteArray) hello = t_hello("localhost");
  g_assert_cmpint(send(fd, hello->data, hello->len, MSG_NOSIGNAL), ==, hello->len);
  return fd;
}

/* The job's tunnel is there, the first behind the BEFORE that had come when it was added, and one beside it; then setup ends, or
 * does what else it does, and where JUMPS the runner's clock jumps. Returns when both have ended. */
static void end_setup(const char *how, guint before, gboolean jumps)
{
  Arrival *job = far_await(far, before);
  QV_AUTOFD int fd = tunnel_beside();
  Arrival *beside = far_await(far, before + 1);
  g_assert_cmpint(ended_ms(beside), ==, 0);
  g_assert_cmpint(send(job->fd, "!", 1, MSG_NOSIGNAL), ==, 1);
  gint64 from_ms = qv_clock_mono_ms();
  if (jumps)
    way_job_jump(world);
  while (jumps && ended_ms(beside) == 0 && qv_clock_mono_ms() - from_ms < WORLD_DEADLINE_MS) /* what wakes the runner lets it see the time */
    g_free(qv_test_valkey_cli(world->valkey, "PUBLISH", "quavon-sandbox:egress-usage", "wake", NULL));
  AWAIT(ended_ms(job) != 0);
  AWAIT(ended_ms(beside) != 0);
  gint64 later_ms = ended_ms(beside) - ended_ms(job);
  g_test_message("%s: the other tunnel ended %d ms after the job's, %d ms after the first word", how, (int)later_ms,
                 (int)(ended_ms(beside) - from_ms));
  g_assert_cmpint(later_ms, <, CUT_MS);
  if (jumps) {
    g_assert_cmpint(ended_ms(beside) - from_ms, <, OVER_MS);
    g_assert_cmpint(ended_ms(job) - from_ms, <, OVER_MS);
  }
}

#define OFF_THE_NETWORK "test -z \"$(docker network inspect --format '{{range .Containers}}{{.Name}} {{end}}' quavon-egress)\""

static void await_off_the_network(void)
{
  engine_way_inside(way, "for i in $(seq 1800); do " OFF_THE_NETWORK " && exit 0; sleep 0.1; done; exit 1");
}

static void kill_job(const QvJob *job, const char *sha256)
{
  world_await_state(world, job->job_id, QV_JOB_ACTIVE);
  GPid process = world_child(world->runner, "job");
  g_assert_cmpint(process, !=, 0); /* it goes on */
  kill(process, SIGKILL);
  world_expect_code(world, job, sha256, "sandbox_lost");
}

static void test_background(void)
{
  char sha256[65];
  guint before = far_come_n(far);
  g_autoptr(QvJob) job = holding_job("");
  world_add(world, job, sha256);
  end_setup("the engine answers", before, FALSE);
  guint come = far_come_n(far);
  AWAIT(has_begun(job));
  engine_way_inside(way, OFF_THE_NETWORK);
  kill_job(job, sha256);
  g_assert_cmpuint(far_come_n(far), ==, come);
  engine_way_expect_clean(way);
}

/* Setup that never ends, as far as the runner hears: its entry is stopped. The runner's own clock ends token, tunnels and network. */
static void test_never_ends(void)
{
  char sha256[65];
  guint before = far_come_n(far);
  g_autoptr(QvJob) job = holding_job("kill -STOP 1; while :; do sleep 1; done");
  way_job_never_ends(job, FALSE);
  world_add(world, job, sha256);
  end_setup("the entry is stopped", before, TRUE);
  await_off_the_network();
  kill_job(job, sha256);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  way_job_unjump(world);
  engine_way_expect_clean(way);
  test_ready();
}

/* Silent as a whole from the moment that the network is to be cut, which never comes about: the run step does not begin. */
static void test_silent_engine(void)
{
  char sha256[65];
  qv_test_proxy_freeze_at(engine, "/networks/quavon-egress/disconnect");
  guint before = far_come_n(far);
  g_autoptr(QvJob) job = holding_job("");
  world_add(world, job, sha256);
  end_setup("the engine is silent", before, FALSE);
  guint come = far_come_n(far);
  AWAIT(qv_test_proxy_frozen(engine));
  /* On the network as before; then what runs is ended, which takes no engine. */
  engine_way_inside(way, "for i in $(seq 1800); do test -n \"$(docker ps --quiet)\" || exit 0; sleep 0.1; done; exit 1");
  g_assert_true(qv_test_proxy_frozen(engine));
  qv_test_proxy_freeze_at(engine, NULL);
  qv_test_proxy_freeze(engine, FALSE);
  world_expect_code(world, job, sha256, "sandbox_failed");
  g_assert_false(has_begun(job));
  g_assert_cmpuint(far_come_n(far), ==, come);
  engine_way_expect_clean(way);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  const char *missing = engine_way_missing();
  world = missing == NULL ? world_new(QV_TEST_VALKEY_PERSIST) : NULL;
  if (world == NULL)
    return 77;
  GPid proxy;
  far = far_start();
  g_autofree char *list = g_strdup_printf("localhost:%u@127.0.0.0/8,localhost:%u@::1", far->port, far->port);
  registries = g_strconcat("QUAVON_SANDBOX_REGISTRIES=", list, NULL);
  g_autofree char *wire_dir = g_build_filename(world->dir, "wire", NULL);
  g_assert_cmpint(g_mkdir(wire_dir, 0700), ==, 0);
  proxy_socket = way_out_start_proxy(world, list, &proxy);
  wire = qv_test_proxy_start(wire_dir, proxy_socket);
  way = engine_way_new(world, "docker-runsc", "base");
  engine_way_network(way, "up");
  engine_way_relay(way, qv_test_proxy_socket(wire));
  engine = qv_test_proxy_start(world->dir, qv_test_dockerd_socket(way->engine));
  way->socket = qv_test_proxy_socket(engine);
  g_test_add_func("/docker-cut/ready", test_ready);
  g_test_add_func("/docker-cut/background", test_background);
  g_test_add_func("/docker-cut/never-ends", test_never_ends);
  g_test_add_func("/docker-cut/silent-engine", test_silent_engine);
  int status = g_test_run();
  if (status == 0)
    g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  qv_test_proxy_free(engine);
  engine_way_free(way);
  qv_test_proxy_free(wire);
  way_out_stop(proxy);
  far_free(far);
  g_free(registries);
  g_free(proxy_socket);
  world_free(world);
  return status;
}
