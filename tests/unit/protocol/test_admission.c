/* SPDX-License-Identifier: Apache-2.0 */
/* Section 2.1: a job for each reject code, each time at its edge, and the order
 * of the checks: a job that fails in several is rejected for the first. */
#include <string.h>

#include "protocol/admission.h"
#include "protocol/envelope.h"
#include "support.h"

typedef struct {
  QvKey *key, *previous, *unknown;
  QvKeyring *ring;
  QvImagesLock *images;
  QvRegistries *registries;
  QvLimitsPolicy limits;
  QvAdmissionPolicy policy;
} World;

static World *world_new(void)
{
  World *world = g_new0(World, 1);
  world->key = t_key(1);
  world->previous = t_key(2);
  world->unknown = t_key(3);
  world->ring = qv_keyring_new(world->key);
  qv_keyring_add_previous(world->ring, world->previous);
  world->images = qv_images_lock_new();
  QvImage image = { .name = (char *)"base", .digest = (char *)T_DIGEST, .platform = (char *)"linux/amd64" };
  qv_images_lock_put(world->images, &image);
  t_policy(&world->limits);
  world->registries = qv_registries_parse("Registry.example.org, other.example.org:8443@10.0.0.0/8", NULL);
  world->policy = (QvAdmissionPolicy){ .ring = world->ring, .pool = "default", .backend = "runsc",
                                       .platform = "linux/amd64", .images = world->images, .limits = &world->limits,
                                       .registries = world->registries };
  return world;
}

static void world_free(World *world)
{
  qv_key_unref(world->key);
  qv_key_unref(world->previous);
  qv_key_unref(world->unknown);
  qv_keyring_unref(world->ring);
  qv_images_lock_free(world->images);
  qv_registries_free(world->registries);
  g_free(world);
}

typedef struct {
  World *world;
  json_t *body;
  const char *bullmq_id;
  QvKey *signer;
  gint64 now;
  gboolean defa, unsupported, no_data, broken_sig, garbage;
} Case;

static Case case_of(World *world)
{
  return (Case){ .world = world, .body = t_job_body(), .bullmq_id = T_JOB_ID, .signer = world->key, .now = T_NOW };
}

/* Runs both tables and consumes the body: the code that decides. */
static QvReject run(Case *c, QvAdmission *out)
{
  gsize n = 0;
  char *text = qv_envelope_sign(QV_ENVELOPE_JOB, c->signer, c->body, &n, NULL);
  g_assert_nonnull(text);
  json_decref(c->body);
  if (c->broken_sig)
    text[n - 4] = text[n - 4] == 'A' ? 'E' : 'A'; /* canonical base64 still */
  if (c->garbage)
    text[0] = '[';
  QvAdmissionFields fields = { .bullmq_id = c->bullmq_id, .has_defa = c->defa, .has_unsupported = c->unsupported,
                               .data = c->no_data ? NULL : text, .data_n = c->no_data ? 0 : n };
  QvReject reject = qv_admission_before_guard(&fields, &c->world->policy, c->now, out);
  g_free(text);
  if (reject == QV_REJECT_NONE) {
    const QvImage *image = NULL;
    char *detail = NULL;
    g_assert_nonnull(out->job);
    g_assert_nonnull(out->key);
    g_assert_cmpuint(strlen(out->job_sha256), ==, 64);
    g_assert_null(out->detail);
    reject = qv_admission_after_guard(out->job, &c->world->policy, &image, &detail);
    g_assert_cmpint(reject == QV_REJECT_NONE, ==, image != NULL);
    g_assert_cmpint(reject == QV_REJECT_NONE, ==, detail == NULL);
    g_free(detail);
  } else {
    g_assert_nonnull(out->detail);
    g_assert_cmpint(out->job != NULL, ==, out->key != NULL);
    g_assert_true(out->job == NULL || reject == QV_REJECT_STALLED);
  }
  return reject;
}

static void expect(Case *c, const char *code)
{
  g_auto(QvAdmission) out;
  g_assert_cmpstr(qv_reject_code(run(c, &out)), ==, code);
}

/* A valid job with one member changed. */
static void expect_edit(World *world, const char *path, json_t *value, const char *code)
{
  Case c = case_of(world);
  t_edit(c.body, path, value);
  expect(&c, code);
}

static void test_codes(void)
{
  World *world = world_new();
  Case c = case_of(world);
  expect(&c, "none");
  c = case_of(world), c.signer = world->previous;
  expect(&c, "none");
  c = case_of(world), c.defa = TRUE;
  expect(&c, "stalled");
  c = case_of(world), c.unsupported = TRUE;
  expect(&c, "unsupported");
  c = case_of(world), c.no_data = TRUE;
  expect(&c, "malformed");
  c = case_of(world), c.garbage = TRUE;
  expect(&c, "malformed");
  c = case_of(world), c.signer = world->unknown;
  expect(&c, "unknown_key");
  c = case_of(world), c.broken_sig = TRUE;
  expect(&c, "bad_signature");
  expect_edit(world, "run", json_array(), "malformed");
  expect_edit(world, "pool", json_string("other"), "wrong_pool");
  c = case_of(world), c.bullmq_id = "00000000-0000-4000-8000-000000000002";
  expect(&c, "job_id_mismatch");
  c = case_of(world), c.bullmq_id = NULL;
  expect(&c, "job_id_mismatch");
  expect_edit(world, "backends", t_json("['firecracker','docker-runsc']"), "backend_not_allowed");
  expect_edit(world, "image.name", json_string("else"), "unknown_image");
  expect_edit(world, "image.digest", json_string("sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"),
              "unknown_image");
  world->policy.platform = "linux/arm64";
  c = case_of(world);
  expect(&c, "unknown_image");
  world->policy.platform = "linux/amd64";
  expect_edit(world, "limits.memoryMiB", json_integer(8192), "none");
  expect_edit(world, "limits.memoryMiB", json_integer(8193), "limits");
  expect_edit(world, "egress", t_json("['registry.example.org:443','other.example.org:8443']"), "none");
  expect_edit(world, "egress", t_json("['registry.example.org:443','evil.example.org:443']"), "egress_not_allowed");
  expect_edit(world, "egress", t_json("['registry.example.org:80']"), "egress_not_allowed");
  world->policy.registries = NULL;
  c = case_of(world);
  expect(&c, "egress_not_allowed");
  world->policy.images = NULL;
  expect_edit(world, "egress", json_array(), "unknown_image");
  world_free(world);
}

static void test_times(void)
{
  static const struct {
    gint64 issued, not_after; /* relative to now */
    const char *code;
  } rows[] = {
    { 0, 900000, "none" },
    { 0, 900001, "not_after_too_far" },
    { 30000, 930000, "none" },
    { 30001, 930001, "not_after_too_far" },
    { 30001, 40000, "not_after_too_far" },
    { 30000, 30000, "none" },
    { 0, 0, "none" },
    { 1, 0, "not_after_too_far" },
    { -30000, -30000, "none" },
    { -30001, -30001, "expired" },
    { -900000, 0, "none" },
    { -900001, 0, "not_after_too_far" },
    { -930000, -30000, "none" },
    { 0, 930001, "not_after_too_far" },
    { -T_NOW, -T_NOW, "expired" },
    { G_GINT64_CONSTANT(9007199254740991) - T_NOW, G_GINT64_CONSTANT(9007199254740991) - T_NOW, "not_after_too_far" },
  };
  World *world = world_new();
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    Case c = case_of(world);
    t_edit(c.body, "issuedAt", json_integer(T_NOW + rows[i].issued));
    t_edit(c.body, "notAfter", json_integer(T_NOW + rows[i].not_after));
    expect(&c, rows[i].code);
  }
  world_free(world);
}

/* All faults at once; each is taken away in the order of the contract, and the next one decides. */
static void test_order(void)
{
  World *world = world_new();
  static const char *const codes[] = { "stalled",       "unsupported",     "malformed",       "unknown_key",
                                       "bad_signature", "malformed",       "wrong_pool",      "job_id_mismatch",
                                       "expired",       "not_after_too_far", "backend_not_allowed", "unknown_image",
                                       "limits",        "egress_not_allowed", "none" };
  for (gsize healed = 0; healed < G_N_ELEMENTS(codes); healed++) {
    Case c = case_of(world);
    c.defa = healed < 1;
    c.unsupported = healed < 2;
    c.garbage = healed < 3;
    c.signer = healed < 4 ? world->unknown : world->key;
    c.broken_sig = healed < 5;
    if (healed < 6)
      t_edit(c.body, "kind", json_string("none"));
    if (healed < 7)
      t_edit(c.body, "pool", json_string("other"));
    if (healed < 8)
      c.bullmq_id = "x";
    if (healed < 9)
      c.now = T_NOW + 600000 + 30001;
    if (healed < 10)
      t_edit(c.body, "issuedAt", json_integer(T_NOW - 600000));
    if (healed < 11)
      t_edit(c.body, "backends", t_json("['firecracker']"));
    if (healed < 12)
      t_edit(c.body, "image.name", json_string("else"));
    if (healed < 13)
      t_edit(c.body, "limits.pids", json_integer(4097));
    if (healed < 14)
      t_edit(c.body, "egress", t_json("['evil.example.org:443']"));
    expect(&c, codes[healed]);
  }
  world_free(world);
}

/* A stalled job's chunks belong to the one that fails it, and only where it is what it says. */
static void test_stalled(void)
{
  World *world = world_new();
  static const struct {
    const char *path, *value;
    gboolean ours;
  } rows[] = {
    { "kind", "'check'", TRUE },
    { "notAfter", "1700000000000", TRUE },
    { "issuedAt", "1", TRUE },
    { "backends", "['firecracker']", TRUE },
    { "pool", "'other'", FALSE },
    { "jobId", "'00000000-0000-4000-8000-000000000002'", FALSE },
    { "kind", "'none'", FALSE },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_auto(QvAdmission) out;
    Case c = case_of(world);
    t_edit(c.body, rows[i].path, t_json(rows[i].value));
    c.defa = TRUE;
    g_assert_cmpint(run(&c, &out), ==, QV_REJECT_STALLED);
    g_assert_cmpint(out.job != NULL, ==, rows[i].ours);
    g_assert_cmpint(out.key != NULL, ==, rows[i].ours);
  }
  g_auto(QvAdmission) forged;
  Case c = case_of(world);
  c.defa = TRUE;
  c.broken_sig = TRUE;
  g_assert_cmpint(run(&c, &forged), ==, QV_REJECT_STALLED);
  g_assert_null(forged.job);
  world_free(world);
}

static void test_reasons(void)
{
  g_assert_cmpstr(qv_reject_failed_reason(QV_REJECT_STALLED), ==, "stalled");
  g_assert_cmpstr(qv_reject_failed_reason(QV_REJECT_REPLAYED), ==, "rejected: replayed");
  for (QvReject reject = QV_REJECT_UNSUPPORTED; reject <= QV_REJECT_EGRESS_NOT_ALLOWED; reject++) {
    g_autofree char *want = g_strconcat("rejected: ", qv_reject_code(reject), NULL);
    g_assert_cmpstr(qv_reject_failed_reason(reject), ==, want);
  }
}

static void test_ttl(void)
{
  g_autoptr(QvJob) job = t_job();
  g_assert_cmpint(qv_admission_guard_ttl_ms(job, T_NOW), ==, 720000);
  g_assert_cmpint(qv_admission_guard_ttl_ms(job, job->not_after + 30000), ==, 90000);
  g_assert_cmpint(qv_admission_guard_ttl_ms(job, job->not_after + 120000), ==, 1);
  g_assert_cmpint(qv_admission_guard_ttl_ms(job, job->not_after + 999999999), ==, 1);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/admission/codes", test_codes);
  g_test_add_func("/admission/times", test_times);
  g_test_add_func("/admission/order", test_order);
  g_test_add_func("/admission/stalled", test_stalled);
  g_test_add_func("/admission/reasons", test_reasons);
  g_test_add_func("/admission/ttl", test_ttl);
  return g_test_run();
}
