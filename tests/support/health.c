/* SPDX-License-Identifier: Apache-2.0 */
#include "support/health.h"

#include <string.h>

#include "base/clock.h"
#include "protocol/images_lock.h"

QvHealth *qv_test_health_new(const char *runner_id, const char *image, const char *digest)
{
  QvHealth *health = qv_health_new();
  health->runner_id = g_strdup(runner_id);
  health->pool = g_strdup("default");
  health->version = g_strdup("0.1.0");
  health->backend = g_strdup("runsc");
  health->runtime_name = g_strdup("runsc");
  health->runtime_version = g_strdup("release-20240729.0");
  health->platform = g_strdup("systrap");
  health->images = g_new0(QvImageRef, 1);
  health->images_n = 1;
  health->images[0] = (QvImageRef){ .name = g_strdup(image), .digest = g_strdup(digest) };
  health->host_id = g_strnfill(64, 'a');
  health->kernel = g_strdup("6.1.0");
  health->cgroup = g_strdup("v2");
  health->concurrency = 1;
  /* As far ahead as it may be: it then counts for longer. */
  health->at = qv_clock_unix_ms() + QV_HEALTH_AHEAD_MS_MAX - 5000;
  health->started_at = qv_clock_unix_ms() - 1000;
  health->smoke = g_new0(QvSmokeReport, 1);
  *health->smoke = (QvSmokeReport){ .at = qv_clock_unix_ms() - 500, .passed = TRUE, .probes = 3, .failed = g_new0(char *, 1) };
  return health;
}

void qv_test_health_put(QvTestValkey *valkey, const char *key_file, const QvHealth *health)
{
  g_autofree char *key_text = NULL;
  gsize n = 0;
  g_autoptr(GError) error = NULL;
  g_file_get_contents(key_file, &key_text, &n, &error);
  g_assert_no_error(error);
  g_autoptr(QvKey) key = qv_key_parse(key_text, n, &error);
  g_assert_no_error(error);
  g_autofree char *text = qv_health_sign(health, key, &n, &error);
  g_assert_no_error(error);
  g_autofree char *prefix = g_str_equal(health->pool, "default") ? g_strdup("quavon-sandbox")
                                                                 : g_strconcat("quavon-sandbox-", health->pool, NULL);
  g_autofree char *name = g_strdup_printf("%s:health:%s", prefix, health->runner_id);
  g_autofree char *set = g_strconcat(prefix, ":runners", NULL);
  g_autofree char *at = g_strdup_printf("%" G_GINT64_FORMAT, MAX(health->at, qv_clock_unix_ms()));
  g_free(qv_test_valkey_cli(valkey, "SET", name, text, NULL));
  g_free(qv_test_valkey_cli(valkey, "ZADD", set, at, health->runner_id, NULL));
}

void qv_test_healthy_runner(QvTestValkey *valkey, const char *key_file, const char *image, const char *digest)
{
  g_autoptr(QvHealth) health = qv_test_health_new("peer", image, digest);
  qv_test_health_put(valkey, key_file, health);
}

void qv_test_healthy_runner_of(QvTestValkey *valkey, const char *key_file, const char *lock_file)
{
  g_autofree char *text = NULL;
  gsize n = 0;
  g_autoptr(GError) error = NULL;
  g_file_get_contents(lock_file, &text, &n, &error);
  g_assert_no_error(error);
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse(text, n, &error);
  g_assert_no_error(error);
  g_autoptr(QvHealth) health = qv_test_health_new("peer", lock->images[0].name, lock->images[0].digest);
  health->images = g_renew(QvImageRef, health->images, lock->n);
  for (gsize i = 1; i < lock->n; i++)
    health->images[health->images_n++] =
        (QvImageRef){ .name = g_strdup(lock->images[i].name), .digest = g_strdup(lock->images[i].digest) };
  qv_test_health_put(valkey, key_file, health);
}
