/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the look for leftovers. */
#include "leftovers.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "place.h"

#define PREFIX "quavon-sandbox"

enum { OWNER_HEX = 12 };

static const char *const names[] = {
#define X(name) #name,
  LEFTOVER_KINDS(X)
#undef X
};

const char *leftover_name(LeftoverKind kind)
{
  return names[kind];
}

/* ---- mounts */

static void add_mounts(World *world, GPtrArray *lines)
{
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL));
  g_auto(GStrv) all = g_strsplit(text, "\n", -1);
  for (char **line = all; *line != NULL; line++) {
    if (strstr(*line, world->dir) != NULL)
      g_ptr_array_add(lines, g_strdup_printf("mount %s", *line));
  }
}

/* ---- keys */

static gboolean is_record(World *world, const char *key)
{
  static const char *const kept[] = {"sandbox:meta",   "sandbox:id",     "sandbox:events", "sandbox:marker",       "sandbox:completed",
                                     "sandbox:failed", "sandbox:stalled-check", "runners", "sandbox:pc"};
  const char *rest = key + strlen(PREFIX ":");
  if (!g_str_has_prefix(key, PREFIX ":"))
    return FALSE;
  for (gsize i = 0; i < G_N_ELEMENTS(kept); i++) {
    if (strcmp(rest, kept[i]) == 0)
      return TRUE;
  }
  if (g_str_has_prefix(rest, "replay:") || g_str_has_prefix(rest, "health:"))
    return TRUE;
  if (g_str_has_prefix(rest, "blob:") && strstr(rest, ".live:") != NULL) /* its readers come after the end, too: protocol.md 10 */
    return TRUE;
  /* The hash of a job that ended. */
  if (!g_str_has_prefix(rest, "sandbox:") || strchr(rest + 8, ':') != NULL)
    return FALSE;
  g_autofree char *ended = qv_test_valkey_cli(world->valkey, "HEXISTS", key, "finishedOn", NULL);
  return strcmp(ended, "1") == 0;
}

static void add_keys(World *world, GPtrArray *lines)
{
  g_autofree char *text = qv_test_valkey_cli(world->valkey, "--scan", NULL);
  g_auto(GStrv) keys = g_strsplit(text, "\n", -1);
  for (char **key = keys; *key != NULL; key++) {
    if (**key != '\0' && !is_record(world, *key))
      g_ptr_array_add(lines, g_strdup_printf("key %s", *key));
  }
}

/* ---- all */

char **leftovers_find(World *world)
{
  GPtrArray *lines = g_ptr_array_new();
  g_autoptr(QvBackend) backend = place_backend(world);
  g_auto(GStrv) ofbackend = qv_backend_leftovers(backend);
  for (char **line = ofbackend; *line != NULL; line++)
    g_ptr_array_add(lines, g_strdup(*line));
  place_leftovers(lines);
  world_processes(world, lines);
  add_mounts(world, lines);
  add_keys(world, lines);
  g_ptr_array_add(lines, NULL);
  return (char **)g_ptr_array_free(lines, FALSE);
}

void leftovers_await_none(World *world)
{
  for (gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;;) {
    g_auto(GStrv) left = leftovers_find(world);
    if (left[0] == NULL)
      return;
    if (qv_clock_mono_ms() > end) {
      g_autofree char *text = g_strjoinv("\n", left), *log = world_log(world);
      gsize n = strlen(log);
      g_error("left over:\n%s\nthe runner's log ends:\n%s", text, n > 8000 ? log + n - 8000 : log);
    }
    g_usleep(50000);
  }
}

/* ---- planting */

static void expect_found(World *world, const char *needle)
{
  g_auto(GStrv) left = leftovers_find(world);
  for (char **line = left; *line != NULL; line++) {
    if (strstr(*line, needle) != NULL)
      return;
  }
  g_autofree char *text = g_strjoinv("\n", left);
  g_error("planted, and not found: %s; found:\n%s", needle, text);
}

static char *runner_id_of(World *world)
{
  g_autofree char *id_file = g_build_filename(world->state_dir, "runner-id", NULL);
  char *id = NULL;
  g_assert_true(g_file_get_contents(id_file, &id, NULL, NULL));
  return g_strchomp(id);
}

/* The owner's name as sandbox/run_folder.c makes it. */
static char *owner_of(World *world)
{
  g_autofree char *runner_id = runner_id_of(world), *text = g_strdup_printf("%s\n%s", runner_id, world->state_dir);
  g_autofree char *hex = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
  return g_strdup_printf("r%.*s", OWNER_HEX, hex);
}

/* Where this runner's cgroups are: sandbox/cgroup.h. */
static void plant_cgroup(World *world, const char *id)
{
  const char *host = g_file_test("/sys/fs/cgroup/cgroup.controllers", G_FILE_TEST_EXISTS) ? "" : "memory";
  g_autofree char *owner = owner_of(world);
  g_autofree char *folder = g_build_filename("/sys/fs/cgroup", host, "quavon", owner, id, NULL);
  g_assert_cmpint(g_mkdir_with_parents(folder, 0755), ==, 0);
}

static void plant_process(World *world, const char *id)
{
  g_autofree char *root = g_strdup_printf("--root=%s/runsc", world->state_dir);
  const char *argv[] = {"/usr/bin/perl", "-e", "sleep 120", "planted", root, id, NULL};
  GPid pid;
  g_autoptr(GError) error = NULL;
  GSpawnFlags quiet = G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL; /* who sweeps kills it, and init reaps it */
  g_spawn_async(NULL, (char **)argv, NULL, quiet, NULL, NULL, &pid, &error);
  g_assert_no_error(error);
}

static void plant_container(World *world, const char *id)
{
  g_autofree char *runner_id = runner_id_of(world), *owner = owner_of(world);
  place_plant(runner_id, owner, id);
}

static void plant_key(World *world, const char *key)
{
  g_free(qv_test_valkey_cli(world->valkey, "SET", key, "planted", NULL));
  expect_found(world, key);
  g_free(qv_test_valkey_cli(world->valkey, "DEL", key, NULL));
}

gboolean leftover_can(LeftoverKind kind)
{
  gboolean own = kind == LEFTOVER_state || kind == LEFTOVER_cgroup || kind == LEFTOVER_process;
  return place_has_engine() ? !own : kind != LEFTOVER_container;
}

void leftover_plant(World *world, LeftoverKind kind, GRand *rand)
{
  if (!leftover_can(kind))
    return;
  char id[QV_UUID_LEN + 1];
  qv_random_uuid(id);
  g_autofree char *bundle = g_build_filename(world->state_dir, "runs", id, NULL);
  g_autofree char *state = g_strdup_printf("%s/runsc/%s_sandbox:%s.state", world->state_dir, id, id);
  g_autofree char *blob = g_strdup_printf(PREFIX ":blob:%s.base:%d", id, g_rand_int_range(rand, 0, 9));
  g_autofree char *token = g_strdup_printf(PREFIX ":egress:%s", id);
  g_autofree char *lock = g_strdup_printf(PREFIX ":sandbox:%s:lock", id);
  g_test_message("plants a %s of %s", leftover_name(kind), id);
  switch (kind) {
  case LEFTOVER_bundle:
  case LEFTOVER_mount:
    g_assert_cmpint(g_mkdir_with_parents(bundle, 0711), ==, 0);
    if (kind == LEFTOVER_mount) {
      g_assert_cmpint(mount("tmpfs", bundle, "tmpfs", 0, "size=64k"), ==, 0);
      g_autofree char *needle = g_strdup_printf("%s rw", bundle);
      expect_found(world, needle);
      g_assert_cmpint(umount(bundle), ==, 0);
    }
    break;
  case LEFTOVER_state:
    g_assert_true(g_file_set_contents(state, "{}", 2, NULL));
    break;
  case LEFTOVER_cgroup:
    plant_cgroup(world, id);
    break;
  case LEFTOVER_process:
    plant_process(world, id);
    break;
  case LEFTOVER_container:
    plant_container(world, id);
    break;
  case LEFTOVER_blob:
    plant_key(world, blob);
    return;
  case LEFTOVER_token:
    plant_key(world, token);
    return;
  case LEFTOVER_lock:
    plant_key(world, lock);
    return;
  case LEFTOVER_KINDS_N:
    return;
  }
  expect_found(world, id);
}
