/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what the engine says of the network for jobs with egress: is it the kind that docs/DOCKER.md asks for, and who is on
 * it. Whether a firewall stands around it the engine does not know: that is tried (runner/egress_trial.h). */
#include <arpa/inet.h>
#include <string.h>

#include "base/error.h"
#include "sandbox/docker_private.h"

#define MISSING "; quavon-egress-network up makes it (docs/DOCKER.md)"
#define OTHERWISE "; quavon-egress-network down, then up, makes one that is as it must be (docs/DOCKER.md)"
#define BRIDGE "com.docker.network.bridge."

/* What must hold, as the engine writes it. Nothing here is left to a default of an engine's release. */
static const struct {
  const char *parent; /* NULL: the network itself */
  const char *name;
  const char *wanted; /* "true" and "false" stand for the JSON values as well */
  const char *means;
} FACTS[] = {
  {NULL, "Driver", "bridge", "it is no bridge"},
  {NULL, "Scope", "local", "it is not this host's own"},
  {NULL, "Internal", "true", "it is not internal"},
  {NULL, "EnableIPv6", "false", "it has IPv6"},
  {NULL, "Ingress", "false", "it is a swarm's"},
  {"Options", BRIDGE "enable_icc", "false", "its containers may speak with each other"},
  {"Options", BRIDGE "enable_ip_masquerade", "false", "its packets are masqueraded"},
};

static gboolean is(const json_t *value, const char *wanted)
{
  if (json_is_boolean(value))
    return strcmp(json_is_true(value) ? "true" : "false", wanted) == 0;
  return g_strcmp0(json_string_value(value), wanted) == 0;
}

static gboolean refuse(const char *network, const char *means, const char *remedy, GError **error)
{
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "docker: the network %s of QUAVON_SANDBOX_EGRESS_NETWORK cannot be used: %s%s",
              network, means, remedy);
  return FALSE;
}

static gboolean take_gateway(const char *name, const json_t *json, QvSandboxNetwork *network, GError **error)
{
  const json_t *config = json_object_get(json_object_get(json, "IPAM"), "Config");
  const char *gateway = json_string_value(json_object_get(json_array_get(config, 0), "Gateway"));
  struct in_addr address;
  if (json_array_size(config) != 1)
    return refuse(name, "it has not exactly one range of addresses", OTHERWISE, error);
  if (gateway == NULL || inet_pton(AF_INET, gateway, &address) != 1)
    return refuse(name, "it has no gateway with an IPv4 address", OTHERWISE, error);
  inet_ntop(AF_INET, &address, network->gateway, sizeof network->gateway);
  return TRUE;
}

/* "10.0.0.2/24" without its length. */
static void take_peers(const json_t *json, QvSandboxNetwork *network)
{
  g_autoptr(GStrvBuilder) peers = g_strv_builder_new();
  const char *id;
  json_t *peer;
  json_object_foreach(json_object_get(json, "Containers"), id, peer) {
    const char *text = json_string_value(json_object_get(peer, "IPv4Address"));
    g_autofree char *address = g_strndup(text != NULL ? text : "", text != NULL ? strcspn(text, "/") : 0);
    struct in_addr parsed;
    if (inet_pton(AF_INET, address, &parsed) == 1)
      g_strv_builder_add(peers, address);
  }
  network->peers = g_strv_builder_end(peers);
}

static gboolean judge(const char *name, const json_t *json, QvSandboxNetwork *network, GError **error)
{
  for (gsize i = 0; i < G_N_ELEMENTS(FACTS); i++) {
    const json_t *parent = FACTS[i].parent != NULL ? json_object_get(json, FACTS[i].parent) : json;
    if (is(json_object_get(parent, FACTS[i].name), FACTS[i].wanted))
      continue;
    g_autofree char *means = g_strdup_printf("%s (%s is not %s)", FACTS[i].means, FACTS[i].name, FACTS[i].wanted);
    return refuse(name, means, OTHERWISE, error);
  }
  /* The firewall's rules go by this name. */
  if (!is(json_object_get(json_object_get(json, "Options"), BRIDGE "name"), name))
    return refuse(name, "its bridge has another name (" BRIDGE "name)", OTHERWISE, error);
  if (!take_gateway(name, json, network, error))
    return FALSE;
  take_peers(json, network);
  return TRUE;
}

gboolean qv_docker_look_network(QvBackend *backend, QvSandboxNetwork *network, GError **error)
{
  QvDockerBackend *docker = (QvDockerBackend *)backend;
  g_auto(QvEngineAnswer) answer = {0};
  g_autoptr(GError) problem = NULL;
  g_autofree char *name = qv_engine_escape(docker->egress_network);
  g_autofree char *path = g_strdup_printf("/networks/%s", name);
  QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = QV_DOCKER_CALL_MS};
  *network = (QvSandboxNetwork){0};
  if (qv_engine_do(docker->engine, &request, &answer, &problem))
    return judge(docker->egress_network, answer.json, network, error);
  if (g_error_matches(problem, QV_ERROR, QV_ERROR_NOT_FOUND))
    return refuse(docker->egress_network, "the engine does not have it", MISSING, error);
  g_propagate_error(error, g_steal_pointer(&problem));
  return FALSE;
}
