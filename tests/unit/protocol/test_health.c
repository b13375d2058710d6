/* SPDX-License-Identifier: Apache-2.0 */
/* Section 8: which records count, which runner is healthy for a job, requests for a smoke test. */
#include <string.h>

#include "base/error.h"
#include "protocol/envelope.h"
#include "protocol/health.h"
#include "support.h"

static json_t *health_body(void)
{
  return t_json("{'v':1,'runnerId':'r1','pool':'default','version':'0.1.0','backend':'runsc',"
                "'runtime':{'name':'runsc','version':'release-20240729.0'},'platform':'systrap',"
                "'images':[{'name':'base','digest':'" T_DIGEST "'}],'hostId':'" T_HEX64 "','kernel':'6.1.0','cgroup':'v2',"
                "'concurrency':2,'busy':1,'startedAt':1699999000000,'at':1700000000000,'problems':['a sweep failed'],"
                "'smoke':{'at':1699999999000,'passed':true,'probes':40,'failed':[],'requestId':null},'insecure':false}");
}

static QvHealth *verify(const json_t *body, QvKey *signer, gint64 now, gboolean *current, GError **error)
{
  gsize n = 0;
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvKey) old = t_key(2);
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  qv_keyring_add_previous(ring, old);
  g_autofree char *text = qv_envelope_sign(QV_ENVELOPE_HEALTH, signer, body, &n, NULL);
  g_assert_nonnull(text);
  return qv_health_verify(text, n, ring, "default", "r1", now, current, error);
}

static void test_rows(void)
{
  static const struct {
    const char *path, *value, *part;
  } rows[] = {
    { "v", "1", NULL }, { "v", "2", "v: " }, { "extra", "1", "not known" }, { "smoke", "null", NULL }, { "hostId", "null", NULL },
    { "hostId", "'x'", "hostId" }, { "runnerId", "'r2'", "runnerId" }, { "pool", "'other'", "pool" }, { "version", "''", "version" },
    { "version", "'a\\u001b[0m'", "version" }, { "backend", "'runc'", "backend" }, { "runtime.version", "null", NULL },
    { "runtime.name", NULL, "runtime.name" }, { "runtime.more", "1", "runtime" }, { "platform", "'linux/amd64'", "platform" },
    { "images", "[]", NULL }, { "images[0].digest", "'latest'", "images[0].digest" }, { "kernel", "null", "kernel" },
    { "cgroup", "1", "cgroup" }, { "concurrency", "0", "concurrency" }, { "busy", "-1", "busy" }, { "problems", "[]", NULL },
    { "problems", "['']", "problems" }, { "problems", "['a\\nb']", "problems" }, { "problems", "['\\u00fcber']", NULL },
    { "smoke.passed", "false", NULL }, { "smoke.failed", "['mount']", "failed probe" }, { "smoke.probes", "0", "none at all" },
    { "smoke.requestId", "'q-1'", NULL }, { "smoke.requestId", "''", "requestId" }, { "smoke.at", "-1", "smoke.at" },
    { "insecure", "0", "insecure" }, { "insecure", "true", NULL },
    { "at", "1700000030000", NULL }, { "at", "1700000030001", "old" }, { "at", "1699999910000", NULL }, { "at", "1699999909999", "old" },
  };
  g_autoptr(QvKey) key = t_key(1);
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GError *error = NULL;
    json_t *body = health_body();
    t_edit(body, rows[i].path, rows[i].value != NULL ? t_json(rows[i].value) : NULL);
    g_autoptr(QvHealth) health = verify(body, key, T_NOW, NULL, &error);
    if ((health != NULL) != (rows[i].part == NULL))
      g_error("%s: %s", rows[i].path, error != NULL ? error->message : "accepted");
    if (error != NULL)
      t_assert_error(&error, QV_ERROR_FORMAT, rows[i].part);
    json_decref(body);
  }
}

static void test_bounds(void)
{
  static const struct {
    const char *path;
    gsize max;
    const char *entry;
  } arrays[] = { { "problems", 32, "'p'" }, { "images", 256, "{'name':'b','digest':'" T_DIGEST "'}" } };
  g_autoptr(QvKey) key = t_key(1);
  for (gsize i = 0; i < G_N_ELEMENTS(arrays); i++) {
    for (gsize over = 0; over < 2; over++) {
      json_t *body = health_body();
      t_edit(body, arrays[i].path, t_repeat(arrays[i].max + over, t_json(arrays[i].entry)));
      g_autoptr(QvHealth) health = verify(body, key, T_NOW, NULL, NULL);
      g_assert_cmpint(health != NULL, ==, over == 0);
      json_decref(body);
    }
  }
  for (gsize over = 0; over < 2; over++) {
    json_t *body = health_body();
    t_edit(body, "problems", t_repeat(1, t_text(512 + over, 'p')));
    g_autoptr(QvHealth) health = verify(body, key, T_NOW, NULL, NULL);
    g_assert_cmpint(health != NULL, ==, over == 0);
    t_edit(body, "problems", json_array());
    t_edit(body, "kernel", t_text(256 + over, 'k'));
    g_autoptr(QvHealth) kernel = verify(body, key, T_NOW, NULL, NULL);
    g_assert_cmpint(kernel != NULL, ==, over == 0);
    json_decref(body);
  }
}

static void test_keys(void)
{
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvKey) old = t_key(2);
  g_autoptr(QvKey) unknown = t_key(3);
  gboolean current = FALSE;
  GError *error = NULL;
  json_t *body = health_body();
  g_autoptr(QvHealth) by_current = verify(body, key, T_NOW, &current, &error);
  g_assert_nonnull(by_current);
  g_assert_true(current);
  g_autoptr(QvHealth) by_old = verify(body, old, T_NOW, &current, &error);
  g_assert_nonnull(by_old);
  g_assert_false(current);
  g_assert_null(verify(body, unknown, T_NOW, &current, &error));
  t_assert_error(&error, QV_ERROR_AUTH, "no key");
  json_decref(body);
}

/* What was read is signed again as the same body; what would not be read is not signed. */
static void test_sign(void)
{
  g_autoptr(QvKey) key = t_key(1);
  GError *error = NULL;
  gsize n = 0, again_n = 0;
  json_t *body = health_body();
  g_autofree char *want = qv_envelope_sign(QV_ENVELOPE_HEALTH, key, body, &n, NULL);
  g_autoptr(QvHealth) health = verify(body, key, T_NOW, NULL, &error);
  g_autofree char *got = qv_health_sign(health, key, &again_n, &error);
  g_assert_no_error(error);
  g_assert_cmpmem(want, n, got, again_n);
  g_free(health->kernel);
  health->kernel = g_strdup("");
  g_assert_null(qv_health_sign(health, key, &n, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "kernel");
  json_decref(body);
}

static void test_fits(void)
{
  static const struct {
    const char *path, *value, *part;
  } rows[] = {
    { "busy", "2", NULL },
    { "smoke", "null", "no smoke test" },
    { "smoke.passed", "false", "did not pass" },
    { "smoke.at", "1699977500000", NULL },
    { "smoke.at", "1699977499999", "too long ago" },
    { "smoke.at", "1700000030001", "too long ago" },
    { "backend", "'firecracker'", "another backend" },
    { "insecure", "true", "insecure" },
    { "images[0].name", "'other'", "image" },
    { "images", "[]", "image" },
    { "images[0].digest", "'sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd'", "image" },
  };
  g_autoptr(QvKey) key = t_key(1);
  char *backends[] = { (char *)"docker-runsc", (char *)"runsc", NULL };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GError *error = NULL;
    json_t *body = health_body();
    t_edit(body, rows[i].path, t_json(rows[i].value));
    g_autoptr(QvHealth) health = verify(body, key, T_NOW, NULL, &error);
    g_assert_no_error(error);
    QvHealthWant want = { .backends = backends, .image_name = "base", .image_digest = T_DIGEST };
    g_assert_cmpint(qv_health_fits(health, &want, T_NOW, &error), ==, rows[i].part == NULL);
    if (error != NULL)
      t_assert_error(&error, QV_ERROR_POLICY, rows[i].part);
    want.development = TRUE;
    if (health->insecure)
      g_assert_true(qv_health_fits(health, &want, T_NOW, NULL));
    json_decref(body);
  }
}

static void test_host_id(void)
{
  char hex[65];
  qv_host_id_format("3f1d6b0e-0000-4000-8000-0123456789ab", hex);
  /* printf 'quavon/host/v1\n3f1d6b0e-0000-4000-8000-0123456789ab' | sha256sum */
  g_assert_cmpstr(hex, ==, "b9fa70411acc3573d0093a6d9d36b1ac15d8b6941c3042b5f7594268b079b2de");
}

static void test_smoke_request(void)
{
  static const struct {
    const char *path, *value;
    gboolean good;
  } rows[] = {
    { "v", "1", TRUE },           { "v", "2", FALSE },          { "pool", "'other'", FALSE }, { "runnerId", "'r2'", FALSE },
    { "requestId", "''", FALSE }, { "requestId", "1", FALSE },  { "more", "1", FALSE },       { "at", "1700000030000", TRUE },
    { "at", "1700000030001", FALSE }, { "at", "1699999880000", TRUE }, { "at", "1699999879999", FALSE },
  };
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  gsize n = 0;
  g_autofree char *text = qv_smoke_request_sign("default", "r1", "q-1", T_NOW, key, &n, NULL);
  g_autofree char *request_id = qv_smoke_request_verify(text, n, ring, "default", "r1", T_NOW, NULL);
  g_assert_cmpstr(request_id, ==, "q-1");
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    json_t *body = t_json("{'v':1,'pool':'default','runnerId':'r1','requestId':'q-1','at':1700000000000}");
    t_edit(body, rows[i].path, t_json(rows[i].value));
    g_autofree char *signed_text = qv_envelope_sign(QV_ENVELOPE_SMOKE, key, body, &n, NULL);
    g_autofree char *id = qv_smoke_request_verify(signed_text, n, ring, "default", "r1", T_NOW, NULL);
    g_assert_cmpint(id != NULL, ==, rows[i].good);
    json_decref(body);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/health/rows", test_rows);
  g_test_add_func("/health/bounds", test_bounds);
  g_test_add_func("/health/keys", test_keys);
  g_test_add_func("/health/sign", test_sign);
  g_test_add_func("/health/fits", test_fits);
  g_test_add_func("/health/host-id", test_host_id);
  g_test_add_func("/health/smoke-request", test_smoke_request);
  return g_test_run();
}
