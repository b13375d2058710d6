/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what tells one kind of sandbox from another, and the text of WARM. */
#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "runner/setup.h"
#include "runner/setup_private.h"

QvSandboxLimits qv_box_limits(const QvLimits *limits)
{
  return (QvSandboxLimits){.memory_mib = limits->memory_mib,
                           .work_mib = limits->work_mib,
                           .milli_cpus = limits->milli_cpus,
                           .pids = limits->pids};
}

gboolean qv_box_kind_equal(const QvBoxKind *a, const QvBoxKind *b)
{
  return g_strcmp0(a->rootfs_file, b->rootfs_file) == 0 && strcmp(a->image_digest, b->image_digest) == 0 &&
         a->limits.memory_mib == b->limits.memory_mib && a->limits.work_mib == b->limits.work_mib &&
         a->limits.milli_cpus == b->limits.milli_cpus && a->limits.pids == b->limits.pids;
}

QvBoxKind qv_setup_kind(const QvSetup *setup)
{
  return (QvBoxKind){.rootfs_file = setup->rootfs_file,
                     .image_digest = setup->image_digest,
                     .limits = qv_box_limits(&setup->job->limits)};
}

gboolean qv_setup_fits(const QvSetup *setup, const QvWarmOrder *order)
{
  QvBoxKind kind = qv_setup_kind(setup);
  return setup->egress_proxy == NULL && strcmp(setup->sandbox_id, order->sandbox_id) == 0 &&
         qv_box_kind_equal(&kind, &order->kind);
}

void qv_box_kind_copy(const QvBoxKind *kind, QvBoxKind *copy)
{
  *copy = (QvBoxKind){.rootfs_file = g_strdup(kind->rootfs_file),
                      .image_digest = g_strdup(kind->image_digest),
                      .limits = kind->limits};
}

void qv_box_kind_clear(QvBoxKind *kind)
{
  g_free(kind->rootfs_file);
  g_free(kind->image_digest);
  *kind = (QvBoxKind){0};
}

char *qv_warm_order_format(const QvWarmOrder *order, gsize *n)
{
  const QvSandboxLimits *limits = &order->kind.limits;
  return qv_setup_dump(json_pack("{s:o,s:s,s:s?,s:s,s:i,s:i,s:i,s:i}", "place", qv_setup_place_build(&order->place), "sandboxId",
                                 order->sandbox_id, "rootfsFile", order->kind.rootfs_file, "imageDigest",
                                 order->kind.image_digest, "memoryMiB", (int)limits->memory_mib, "workMiB",
                                 (int)limits->work_mib, "milliCpus", (int)limits->milli_cpus, "pids", (int)limits->pids),
                       n);
}

QvWarmOrder *qv_warm_order_parse(const char *text, gsize n, GError **error)
{
  json_error_t why = {0};
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
  json_t *place = NULL, *rootfs_file = NULL;
  const char *id = NULL, *digest = NULL;
  json_int_t memory, work, cpus, pids;
  g_autoptr(QvWarmOrder) order = g_new0(QvWarmOrder, 1);
  gboolean fine = root != NULL &&
                  json_unpack_ex(root, &why, 0, "{s:o,s:s,s:o,s:s,s:I,s:I,s:I,s:I !}", "place", &place, "sandboxId", &id,
                                 "rootfsFile", &rootfs_file, "imageDigest", &digest, "memoryMiB", &memory, "workMiB",
                                 &work, "milliCpus", &cpus, "pids", &pids) == 0 &&
                  qv_setup_place_parse(place, &order->place, &why);
  if (fine) {
    order->sandbox_id = g_strdup(id);
    order->kind = (QvBoxKind){.rootfs_file = g_strdup(json_string_value(rootfs_file)),
                              .image_digest = g_strdup(digest),
                              .limits = {.memory_mib = memory, .work_mib = work, .milli_cpus = cpus, .pids = pids}};
  } else {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "WARM between processes: %s", why.text);
  }
  json_decref(root);
  return fine ? g_steal_pointer(&order) : NULL;
}

void qv_warm_order_free(QvWarmOrder *order)
{
  if (order == NULL)
    return;
  qv_place_clear(&order->place);
  qv_box_kind_clear(&order->kind);
  g_free(order->sandbox_id);
  g_free(order);
}
