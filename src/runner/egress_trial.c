/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the targets of the trial and what is made of their answers. A closed port that answers is a fault as well: what
 * reaches a closed port reaches an open one. Silence alone proves little: a host's own firewall may drop what nobody listens for, and let
 * in what somebody does. So the rules refuse one port, the canary, and by its answer they are known to be there. */
#include "runner/egress_trial.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/canary.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/random.h"
#include "runner/smoke_box.h"

enum { TARGETS_MAX = 180, PEERS_MAX = 8, LISTENERS_MAX = 64, PROC_NET_BYTES_MAX = 4 * 1024 * 1024, TCP_LISTEN = 10 };

/* Of the host: what its closed ports answer with is seen on any of them, its open ones where they are. */
static const guint16 TCP_PORTS[] = {1, 22, 25, 53, 80, 111, 443, 631, 2375, 2376, 3306, 5432, 6379, 8080, 9090, 9100};
static const guint16 UDP_PORTS[] = {9, 53, 67, 123, 161};
static const guint16 PEER_PORTS[] = {1, 22};
/* Anything else stands for an answer. */
static const char *const SHUT[] = {"SILENT", "CLOSED", "ENETUNREACH", "EHOSTUNREACH", "ETIMEDOUT", "EPERM", "EACCES", NULL};

static const QvSandboxLimits LIMITS = {.memory_mib = 128, .work_mib = 16, .milli_cpus = 1000, .pids = 64};

/* ---- targets */

static void add(GPtrArray *targets, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void add(GPtrArray *targets, const char *format, ...)
{
  va_list list;
  va_start(list, format);
  g_autofree char *text = g_strdup_vprintf(format, list);
  va_end(list);
  gboolean there = FALSE;
  for (guint i = 0; i < targets->len && !there; i++)
    there = strcmp(targets->pdata[i], text) == 0;
  if (!there && targets->len < TARGETS_MAX)
    g_ptr_array_add(targets, g_steal_pointer(&text));
}

static void add_ports(GPtrArray *targets, const char *kind, const char *address, const guint16 *ports, gsize n)
{
  for (gsize i = 0; i < n; i++)
    add(targets, "%s:%s:%u", kind, address, ports[i]);
}

/* What listens on this host, where this process sees it: in a container of its own it does not. */
static void add_listeners(GPtrArray *targets, const char *gateway)
{
  static const char *const files[] = {"/proc/net/tcp", "/proc/net/tcp6"}; /* [::] takes IPv4 as well */
  guint limit = targets->len + LISTENERS_MAX;
  for (gsize i = 0; i < G_N_ELEMENTS(files); i++) {
    gsize size;
    g_autofree char *text = qv_fd_read_file(files[i], PROC_NET_BYTES_MAX, &size, NULL);
    g_auto(GStrv) lines = g_strsplit(text != NULL ? text : "", "\n", -1);
    for (char **line = lines; *line != NULL && targets->len < limit; line++) {
      guint port, state;
      if (sscanf(*line, "%*u: %*32[0-9A-F]:%4x %*32[0-9A-F]:%*4x %2x", &port, &state) == 2 && state == TCP_LISTEN)
        add(targets, "tcp:%s:%u", gateway, port);
    }
  }
}

static void add_own_addresses(GPtrArray *targets)
{
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) != 0)
    return;
  for (struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
    char address[INET_ADDRSTRLEN];
    if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    inet_ntop(AF_INET, &((struct sockaddr_in *)at->ifa_addr)->sin_addr, address, sizeof address);
    add(targets, "tcp:%s:22", address);
    add(targets, "tcp:%s:1", address);
  }
  freeifaddrs(all);
}

/* Those who have come since BEFORE first: the trial's own is among them. */
static void add_peers(GPtrArray *targets, const char *proxy_address, char *const *before, char *const *peers)
{
  guint n = 0;
  for (int known = 0; known <= 1; known++)
    for (gsize i = 0; peers[i] != NULL && n < PEERS_MAX; i++) {
      if (g_strv_contains((const char *const *)before, peers[i]) != known || strcmp(proxy_address, peers[i]) == 0)
        continue;
      add_ports(targets, "tcp", peers[i], PEER_PORTS, G_N_ELEMENTS(PEER_PORTS));
      n++;
    }
}

/* The proxy first, then the canary. */
static char **plan_targets(const QvSandboxNetwork *network, char *const *before, const char *proxy)
{
  g_autoptr(GPtrArray) targets = g_ptr_array_new();
  g_autofree char *address = g_strndup(proxy, strcspn(proxy, ":"));
  add(targets, "tcp:%s", proxy);
  /* Even where that is the proxy itself, which then fails as a canary. */
  g_ptr_array_add(targets, g_strdup_printf("tcp:%s:%d", network->gateway, QV_EGRESS_CANARY_PORT));
  add_ports(targets, "tcp", network->gateway, TCP_PORTS, G_N_ELEMENTS(TCP_PORTS));
  add_ports(targets, "udp", network->gateway, UDP_PORTS, G_N_ELEMENTS(UDP_PORTS));
  if (strcmp(address, network->gateway) != 0)
    add_ports(targets, "tcp", address, TCP_PORTS, G_N_ELEMENTS(TCP_PORTS));
  add_peers(targets, address, before, network->peers);
  add(targets, "dns:%s:example.com", network->gateway);
  add(targets, "resolver:example.com");
  add(targets, "route:192.0.2.1");
  add(targets, "route:169.254.169.254");
  add_listeners(targets, network->gateway);
  add_own_addresses(targets);
  g_ptr_array_add(targets, NULL);
  return (char **)g_ptr_array_free(g_steal_pointer(&targets), FALSE);
}

/* ---- judgement */

/* Nothing else says AWAY. */
static gboolean judge_proxy(const char *network, const char *target, const char *answer, gboolean *away, GError **error)
{
  const char *proxy = target + strlen("tcp:");
  if (strcmp(answer, "OPEN") == 0)
    return TRUE;
  gboolean nobody = strcmp(answer, "ECONNREFUSED") == 0;
  *away = TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_GONE,
              "a sandbox on the network %s does not reach the proxy %s of QUAVON_SANDBOX_EGRESS_PROXY (%s): %s", network, proxy, answer,
              nobody ? "nobody listens there; start quavon-sandbox-egress, with QUAVON_EGRESS_LISTEN of that address"
                     : "a firewall of this host's is in the way, or the address is another one; quavon-egress-network up makes "
                       "network and rules");
  return FALSE;
}

static gboolean judge_other(const char *network, const char *target, const char *answer, GError **error)
{
  if (g_strv_contains(SHUT, answer))
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
              "a sandbox on the network %s reaches %s (%s), and may reach the proxy alone: load the firewall's rules, "
              "quavon-egress-network rules (docs/DOCKER.md)", network, target, answer);
  return FALSE;
}

static gboolean judge_canary(const char *network, const char *target, const char *answer, GError **error)
{
  if (strcmp(answer, "ECONNREFUSED") == 0)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
              "a sandbox on the network %s is not refused %s (%s), which is how the firewall's rules show that they are there: load "
              "them, quavon-egress-network rules, and let no other firewall drop before them (docs/DOCKER.md)", network, target, answer);
  return FALSE;
}

gboolean qv_egress_trial_judge(const char *network, char *const *targets, const char *report, gboolean *away, GError **error)
{
  *away = FALSE;
  g_auto(GStrv) lines = g_strsplit(report, "\n", -1);
  enum { PROXY, CANARY, FIRST_N };
  const char *first[FIRST_N] = {NULL};
  for (gsize i = 0; targets[i] != NULL; i++) {
    g_autofree char *head = g_strdup_printf("reach %s ", targets[i]);
    if (i >= g_strv_length(lines) || !g_str_has_prefix(lines[i], head)) {
      g_set_error(error, QV_ERROR, QV_ERROR_PEER, "the trial of the network %s gave no answer for %s", network, targets[i]);
      return FALSE;
    }
    if (i < FIRST_N)
      first[i] = lines[i] + strlen(head);
    else if (!judge_other(network, targets[i], lines[i] + strlen(head), error))
      return FALSE;
  }
  return judge_canary(network, targets[CANARY], first[CANARY], error) &&
         judge_proxy(network, targets[PROXY], first[PROXY], away, error);
}

/* ---- the trial */

static void note(QvSandbox *sandbox, QvSandboxEvent event, gpointer data)
{
  *(gboolean *)data |= event == QV_SANDBOX_STARTED || event == QV_SANDBOX_EXITED;
}

/* A container that is on the network and does nothing: an entry without a request. */
static QvSandbox *start_peer(QvBackend *backend, const QvTrialImages *image, const char *id, gboolean *done, GError **error)
{
  QvSandboxRequest request = {.sandbox_id = id,
                              .rootfs_file = image->rootfs_file,
                              .image_digest = image->digests[0],
                              .egress_network = qv_backend_network(backend),
                              .limits = LIMITS};
  g_autoptr(QvSandbox) sandbox = qv_backend_start(backend, &request, note, done, error);
  while (sandbox != NULL && !*done)
    g_main_context_iteration(NULL, TRUE);
  if (sandbox == NULL || qv_sandbox_has_started(sandbox))
    return g_steal_pointer(&sandbox);
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "%s", qv_sandbox_failure(sandbox));
  return NULL;
}

static gboolean ask(QvBackend *backend, const QvTrialImages *image, char *const *targets, gboolean *away, GError **error)
{
  const char *name = qv_backend_network(backend);
  g_autofree char *list = g_strjoinv(" ", (char **)targets), *arguments = g_strconcat("reach ", list, NULL);
  QvSmokePlan plan = {.arguments = {arguments}, .steps_n = 1, .limits = LIMITS, .network = name};
  QvSmokeSeen seen;
  qv_smoke_box_run(backend, image, &plan, &seen);
  gboolean ok = seen.end == QV_HOST_COMPLETE && seen.clean;
  if (!ok)
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "the trial of the network %s failed: %s", name,
                seen.why != NULL ? seen.why : qv_host_end_text(seen.end));
  else
    ok = qv_egress_trial_judge(name, targets, seen.log->str, away, error);
  qv_smoke_seen_clear(&seen);
  return ok;
}

static gboolean hold(QvBackend *backend, const QvTrialImages *image, const char *proxy, gboolean *away, GError **error)
{
  char id[QV_UUID_LEN + 1];
  gboolean done = FALSE;
  g_autoptr(QvSandbox) peer = NULL;
  g_autoptr(GError) left = NULL;
  g_auto(QvSandboxNetwork) before = {0}, network = {0};
  /* Looked at before anything is put on it, and again for who is there. */
  if (!qv_backend_look_network(backend, &before, error))
    return FALSE;
  qv_random_uuid(id);
  peer = start_peer(backend, image, id, &done, error);
  if (peer == NULL || !qv_backend_look_network(backend, &network, error))
    return FALSE;
  g_auto(GStrv) targets = plan_targets(&network, before.peers, proxy);
  gboolean ok = ask(backend, image, targets, away, error);
  if (qv_sandbox_kill(peer, &left))
    return ok;
  *away = FALSE;
  g_clear_error(error);
  g_propagate_error(error, g_steal_pointer(&left));
  return FALSE;
}

gboolean qv_egress_trial(QvBackend *backend, const QvTrialImages *image, const char *proxy, gboolean *away, GError **error)
{
  gboolean is_away = FALSE;
  const char *name = qv_backend_network(backend);
  gboolean ok = name == NULL || (proxy != NULL && hold(backend, image, proxy, &is_away, error));
  if (name != NULL && proxy == NULL)
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "QUAVON_SANDBOX_EGRESS_PROXY is not set: the network %s has no proxy to be tried with",
                name);
  if (away != NULL)
    *away = is_away;
  return ok;
}
