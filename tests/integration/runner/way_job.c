/* SPDX-License-Identifier: Apache-2.0 */
#include "way_job.h"

#include <glib/gstdio.h>

#define DIALLER \
  "import os, socket, sys, time\n" \
  "port = int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])\n" \
  "s = socket.create_connection(('127.0.0.1', port))\n" \
  "s.sendall(b'CONNECT %s HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' % sys.argv[1].encode())\n" \
  "f = s.makefile('rb')\n" \
  "print(f.readline().decode().strip(), flush=True)\n" \
  "while f.readline().strip(): pass\n" \
  "if sys.argv[2] == 'ping':\n" \
  "  s.sendall(b'ping\\n'); print(f.readline().decode().strip())\n" \
  "if sys.argv[2] == 'wait': f.read()\n" \
  "while sys.argv[2] == 'hold':\n" \
  "  s.sendall(b'x'); time.sleep(0.05)\n"

QvJob *way_job_new(World *world, const EngineWay *way, const char *host_port, const char *const *files, const char *setup, const char *run)
{
  QvJob *job = world_job(world, run);
  if (way != NULL)
    engine_way_adopt(way, job);
  g_autoptr(GPtrArray) all = g_ptr_array_new();
  g_ptr_array_add(all, (gpointer)"dial.py");
  g_ptr_array_add(all, (gpointer)DIALLER);
  for (; files != NULL && *files != NULL; files++)
    g_ptr_array_add(all, (gpointer)*files);
  g_ptr_array_add(all, NULL);
  g_autoptr(GBytes) plain = world_snapshot((const char *const *)all->pdata);
  world_put_base(world, job, plain);
  g_autofree char *script = g_strconcat("dial() { python3 dial.py \"$@\"; }\n", setup, NULL);
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  job->setup = g_new0(QvStep, 1);
  *job->setup = (QvStep){.name = g_strdup("setup"), .argv = g_strdupv((char **)argv)};
  g_strfreev(job->egress);
  job->egress = g_strdupv((char *[]){(char *)host_port, NULL});
  return job;
}

/* ---- the runner's clock */

static char *jump_file(const World *world)
{
  return g_build_filename(world->dir, "jumped", NULL);
}

char **way_job_jumping(const World *world, const char *const *extra)
{
  g_autofree char *file = jump_file(world);
  const char *asan = g_getenv("ASAN_OPTIONS");
  g_autoptr(GStrvBuilder) settings = g_strv_builder_new();
  g_autofree char *preload = g_strconcat("LD_PRELOAD=", g_getenv("QUAVON_TEST_SHIFT_CLOCK"), NULL);
  g_autofree char *order = g_strconcat("ASAN_OPTIONS=", asan != NULL ? asan : "", ":verify_asan_link_order=0", NULL);
  g_autofree char *seconds = g_strdup_printf("QV_SHIFT_MONOTONIC_S=%d", WAY_JOB_JUMP_S);
  g_autofree char *while_there = g_strconcat("QV_SHIFT_CLOCK_WHILE=", file, NULL);
  const char *ours[] = {preload, order, seconds, while_there, "QUAVON_SANDBOX_LOCK_MS=600000", "QUAVON_SANDBOX_STALLED_MS=600000"};
  for (gsize i = 0; i < G_N_ELEMENTS(ours); i++)
    g_strv_builder_add(settings, ours[i]);
  for (; extra != NULL && *extra != NULL; extra++)
    g_strv_builder_add(settings, *extra);
  return g_strv_builder_end(settings);
}

void way_job_jump(const World *world)
{
  g_autofree char *file = jump_file(world);
  g_assert_true(g_file_set_contents(file, "", 0, NULL));
}

void way_job_unjump(const World *world)
{
  g_autofree char *file = jump_file(world);
  g_assert_cmpint(g_unlink(file), ==, 0);
}

void way_job_never_ends(QvJob *job, gboolean wall)
{
  /* The token lives for 120 s more than the step. */
  job->setup->timeout_ms = wall ? 0 : 300000;
  job->given.wall_ms = wall ? 300000 : 1800000;
}

/* ---- */

char *way_job_token_key(FakeProxy *proxy)
{
  g_autofree char *hash = fake_proxy_token_hash(proxy);
  return g_strconcat("quavon-sandbox:egress:", hash, NULL);
}

char *way_job_host_addresses(void)
{
  g_autofree char *out = NULL;
  g_assert_true(g_spawn_command_line_sync("hostname -I", &out, NULL, NULL, NULL));
  g_auto(GStrv) words = g_strsplit(g_strstrip(out), " ", -1);
  g_autoptr(GString) list = g_string_new("'192.0.2.9'"); /* where the machine has no address of its own */
  for (char **word = words; *word != NULL; word++)
    g_string_append_printf(list, ",'%s'", *word);
  return g_string_free(g_steal_pointer(&list), FALSE);
}
