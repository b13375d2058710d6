/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QD951 to QD958: what health records say, held against what must be. */
#include <string.h>

#include "base/error.h"
#include "cli/doctor.h"
#include "client/health.h"

static const struct {
  const char *backend, *runtime, *platform; /* platform NULL: any */
} needs[] = {
  { "docker-runsc", "runsc", "systrap" },
  { "runsc", "runsc", "systrap" },
  { "kubernetes-runsc", "runsc", "systrap" },
  { "firecracker", "firecracker", "kvm" },
  { "docker-runc-insecure", "runc", NULL },
};

static void check_report(GPtrArray *findings, const QvHealth *h, gint64 now_ms)
{
  g_autoptr(GString) images = g_string_new(NULL);
  for (gsize i = 0; i < h->images_n; i++)
    g_string_append_printf(images, "%s%s@%.15s", i > 0 ? " " : "", h->images[i].name, h->images[i].digest);
  g_autofree char *problems = g_strjoinv("; ", h->problems);
  qv_finding_add(findings, "QD951", *problems != '\0' ? QV_DOCTOR_WARN : QV_DOCTOR_OK, h->runner_id,
                 "backend %s, runtime %s %s, platform %s, cgroup %s, kernel %s, images %s, host id %.12s, %" G_GINT64_FORMAT
                 " of %" G_GINT64_FORMAT " busy, record %" G_GINT64_FORMAT " s old%s%s",
                 h->backend, h->runtime_name, h->runtime_version != NULL ? h->runtime_version : "(unknown)", h->platform,
                 h->cgroup, h->kernel, images->len > 0 ? images->str : "none", h->host_id != NULL ? h->host_id : "unknown",
                 h->busy, h->concurrency, MAX(now_ms - h->at, 0) / 1000, *problems != '\0' ? "; problems: " : "", problems);
}

static void check_backend(GPtrArray *findings, const QvHealth *h, const QvDoctorWorld *world)
{
  if (!h->insecure) {
    qv_finding_add(findings, "QD953", QV_DOCTOR_OK, h->runner_id, "backend %s isolates", h->backend);
    return;
  }
  gboolean allowed = world->development && !world->enterprise;
  qv_finding_add(findings, "QD953", allowed ? QV_DOCTOR_WARN : QV_DOCTOR_FAIL, h->runner_id,
                 "backend %s does not isolate: %s", h->backend,
                 allowed ? "for development alone" : world->enterprise ? "never in the enterprise edition" : "never in production");
}

static void check_runtime(GPtrArray *findings, const QvHealth *h)
{
  for (gsize i = 0; i < G_N_ELEMENTS(needs); i++) {
    if (strcmp(needs[i].backend, h->backend) != 0)
      continue;
    gboolean fits = strcmp(needs[i].runtime, h->runtime_name) == 0 &&
                    (needs[i].platform == NULL || strcmp(needs[i].platform, h->platform) == 0);
    if (fits)
      qv_finding_add(findings, "QD954", QV_DOCTOR_OK, h->runner_id, "runtime %s, platform %s", h->runtime_name, h->platform);
    else
      qv_finding_add(findings, "QD954", QV_DOCTOR_FAIL, h->runner_id, "runtime %s, platform %s; backend %s needs %s with %s",
                     h->runtime_name, h->platform, h->backend, needs[i].runtime,
                     needs[i].platform != NULL ? needs[i].platform : "any");
    return;
  }
  qv_finding_add(findings, "QD954", QV_DOCTOR_FAIL, h->runner_id, "backend %s is not known", h->backend);
}

static void check_host_id(GPtrArray *findings, const QvHealth *h, const QvDoctorWorld *world)
{
  gboolean unknown = h->host_id == NULL || world->host_id == NULL;
  if (!unknown && strcmp(h->host_id, world->host_id) != 0) {
    qv_finding_add(findings, "QD955", QV_DOCTOR_OK, h->runner_id, "on another host than this one");
    return;
  }
  qv_finding_add(findings, "QD955", world->enterprise ? QV_DOCTOR_FAIL : QV_DOCTOR_WARN, h->runner_id, "%s",
                 unknown ? "whether it is on this host cannot be known"
                         : "on this host: who breaks out of gVisor stands beside what else runs here");
}

/* What the runner has of an image's name; NULL: nothing. */
static const char *offered(const QvHealth *h, const char *name, const char *digest)
{
  const char *other = NULL;
  for (gsize i = 0; i < h->images_n; i++) {
    if (strcmp(h->images[i].name, name) != 0)
      continue;
    if (strcmp(h->images[i].digest, digest) == 0)
      return h->images[i].digest;
    other = other != NULL ? other : h->images[i].digest;
  }
  return other;
}

static void check_images(GPtrArray *findings, const QvHealth *h, const QvDoctorWorld *world)
{
  guint same = 0;
  gboolean fault = FALSE;
  for (gsize i = 0; world->lock != NULL && i < world->lock->n; i++) {
    const QvImage *image = &world->lock->images[i];
    if (strcmp(image->platform, world->platform) != 0 ||
        qv_images_lock_find(world->lock, image->name, NULL, image->platform) != image)
      continue; /* another machine's, or the previous one */
    const char *there = offered(h, image->name, image->digest);
    if (there != NULL && strcmp(there, image->digest) == 0) {
      same++;
      continue;
    }
    if (there != NULL)
      qv_finding_add(findings, "QD956", QV_DOCTOR_FAIL, h->runner_id, "image %s is %.19s… there and %.19s… in the lock file here",
                     image->name, there, image->digest);
    else
      qv_finding_add(findings, "QD956", QV_DOCTOR_FAIL, h->runner_id, "image %s of the lock file here is not there", image->name);
    qv_finding_remedy(findings, "on the runner: quavon images build %s%s%s && " QV_DOCTOR_RELOAD, image->name,
                      g_str_has_prefix(h->backend, "docker-") ? " && quavon images load " : "",
                      g_str_has_prefix(h->backend, "docker-") ? image->name : "");
    fault = TRUE;
  }
  if (fault)
    return;
  if (h->images_n == 0)
    qv_finding_add(findings, "QD956", QV_DOCTOR_FAIL, h->runner_id, "it offers no image at all");
  else if (world->lock == NULL)
    qv_finding_add(findings, "QD956", QV_DOCTOR_OK, h->runner_id, "%zu images; there is no lock file here to compare with", h->images_n);
  else
    qv_finding_add(findings, "QD956", QV_DOCTOR_OK, h->runner_id, "%u images as in the lock file here", same);
}

static void check_smoke(GPtrArray *findings, const QvHealth *h, gint64 now_ms)
{
  const QvSmokeReport *smoke = h->smoke;
  if (smoke == NULL) {
    qv_finding_add(findings, "QD957", QV_DOCTOR_FAIL, h->runner_id, "no escape smoke test has ended yet");
    return;
  }
  gint64 age_s = MAX(now_ms - smoke->at, 0) / 1000;
  if (!smoke->passed) {
    g_autofree char *names = g_strjoinv(", ", smoke->failed);
    qv_finding_add(findings, "QD957", QV_DOCTOR_FAIL, h->runner_id, "escape smoke test failed: %s", names);
  } else if (now_ms - smoke->at > QV_SMOKE_AGE_MS_MAX) {
    qv_finding_add(findings, "QD957", QV_DOCTOR_FAIL, h->runner_id,
                   "the escape smoke test that passed is older than 6 h 15 min (%" G_GINT64_FORMAT " h %" G_GINT64_FORMAT " min)",
                   age_s / 3600, age_s / 60 % 60);
  } else {
    qv_finding_add(findings, "QD957", QV_DOCTOR_OK, h->runner_id,
                   "escape smoke test passed: %" G_GINT64_FORMAT " probes, %" G_GINT64_FORMAT " min ago", smoke->probes, age_s / 60);
  }
}

/* Healthy for some job here (section 8). */
static gboolean is_healthy(const QvHealth *h, const QvDoctorWorld *world)
{
  return h->smoke != NULL && h->smoke->passed && world->now_ms - h->smoke->at <= QV_SMOKE_AGE_MS_MAX &&
         (!h->insecure || (world->development && !world->enterprise)) && h->images_n > 0;
}

static void check_record(GPtrArray *findings, const QvRunnerSeen *seen)
{
  if (seen->health == NULL && seen->error->code == QV_ERROR_AUTH) {
    qv_finding_add(findings, "QD958", QV_DOCTOR_FAIL, seen->runner_id, "its record: %s", seen->error->message);
  } else if (seen->health == NULL) {
    qv_finding_add(findings, "QD952", QV_DOCTOR_FAIL, seen->runner_id, "its record does not count: %s", seen->error->message);
  } else if (seen->current) {
    qv_finding_add(findings, "QD958", QV_DOCTOR_OK, seen->runner_id, "signed with the current key");
  } else {
    qv_finding_add(findings, "QD958", QV_DOCTOR_WARN, seen->runner_id, "signed with another of our keys than the current one");
    qv_finding_remedy(findings, "quavon keys rotate switch, or: " QV_DOCTOR_RELOAD);
  }
}

void qv_doctor_runners(GPtrArray *findings, const GPtrArray *seen, const QvDoctorWorld *world)
{
  guint healthy = 0;
  for (guint i = 0; i < seen->len; i++) {
    const QvRunnerSeen *runner = seen->pdata[i];
    const QvHealth *h = runner->health;
    if (h != NULL) {
      healthy += is_healthy(h, world);
      check_report(findings, h, world->now_ms);
      check_backend(findings, h, world);
      check_runtime(findings, h);
      check_host_id(findings, h, world);
      check_images(findings, h, world);
      check_smoke(findings, h, world->now_ms);
    }
    check_record(findings, runner);
  }
  if (healthy > 0)
    qv_finding_add(findings, "QD952", QV_DOCTOR_OK, NULL, "%u of %u runners of pool %s healthy", healthy, seen->len, world->pool);
  else
    qv_finding_add(findings, "QD952", QV_DOCTOR_FAIL, NULL, "no healthy runner in pool %s%s", world->pool,
                   seen->len == 0 ? ": none has reported in the last 90 s" : "");
}
