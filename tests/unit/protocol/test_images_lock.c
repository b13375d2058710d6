/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/error.h"
#include "protocol/images_lock.h"
#include "support.h"

#define D(c) "sha256:" c c c c c c c c c c c c c c c c
#define ENTRY(name, digest, platform) \
  "{'name':'" name "','digest':'" digest "','kind':'image-id','platform':'" platform "'}"
#define LOCK(images) "{'v':1,'images':[" images "]}"
#define AMD "linux/amd64"
#define ARM "linux/arm64"

static QvImagesLock *parse(const char *text, GError **error)
{
  g_autofree char *quoted = g_strdelimit(g_strdup(text), "'", '"');
  return qv_images_lock_parse(quoted, strlen(quoted), error);
}

static void test_rows(void)
{
  static const struct {
    const char *text, *part;
  } rows[] = {
    { LOCK(""), NULL },
    { LOCK(ENTRY("base", D("aaaa"), AMD)), NULL },
    { LOCK(ENTRY("base", D("aaaa"), AMD) "," ENTRY("base", D("bbbb"), AMD)), NULL },
    { LOCK(ENTRY("base", D("aaaa"), AMD) "," ENTRY("base", D("aaaa"), ARM)), NULL },
    { LOCK(ENTRY("base", D("aaaa"), AMD) "," ENTRY("base", D("bbbb"), AMD) "," ENTRY("base", D("aaaa"), ARM) ","
           ENTRY("base", D("bbbb"), ARM)), NULL },
    { LOCK(ENTRY("base", D("aaaa"), AMD) "," ENTRY("base", D("aaaa"), AMD)), "same image" },
    { LOCK(ENTRY("base", D("aaaa"), AMD) "," ENTRY("base", D("bbbb"), AMD) "," ENTRY("base", D("cccc"), AMD)), "third" },
    { LOCK(ENTRY("base", D("aaaa"), AMD) "," ENTRY("other", D("aaaa"), AMD)), NULL },
    { LOCK(ENTRY("ba se", D("aaaa"), AMD)), "images[0].name" },
    { LOCK(ENTRY("base", "latest", AMD)), "images[0].digest" },
    { LOCK(ENTRY("base", D("AAAA"), AMD)), "images[0].digest" },
    { LOCK(ENTRY("base", D("aaaa"), "windows/amd64")), "images[0].platform" },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'tag','platform':'" AMD "'}"), "images[0].kind" },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'repository','platform':'" AMD "'}"), NULL },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'repository','platform':'" AMD "','tag':'x'}"), "images[0]: " },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "','rootfs':{'file':'a/b.erofs',"
           "'sha256':'" T_HEX64 "'}}"), NULL },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "','rootfs':{'file':'../b.erofs',"
           "'sha256':'" T_HEX64 "'}}"), "rootfs.file" },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "','rootfs':{'file':'/b.erofs',"
           "'sha256':'" T_HEX64 "'}}"), "rootfs.file" },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "','rootfs':{'file':'b'}}"), "rootfs.sha256" },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "','rootfs':null}"), "images[0].rootfs" },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "','vm':{'rootfs':'r','rootfsSha256':'"
           T_HEX64 "','kernel':'k','kernelSha256':'" T_HEX64 "'}}"), NULL },
    { LOCK("{'name':'b','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "','vm':{'rootfs':'r','rootfsSha256':'"
           T_HEX64 "','kernel':'k'}}"), "vm.kernelSha256" },
    { LOCK("1"), "images[0]" },
    { "{'v':2,'images':[]}", "v: " },
    { "{'images':[]}", "v: " },
    { "{'v':1}", "images" },
    { "{'v':1,'images':{}}", "images" },
    { "{'v':1,'images':[],'x':1}", "not known" },
    { "{'v':1,'v':1,'images':[]}", "twice" },
    { "[]", "object" },
    { "", "" },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GError *error = NULL;
    g_autoptr(QvImagesLock) lock = parse(rows[i].text, &error);
    if ((lock != NULL) != (rows[i].part == NULL))
      g_error("%s: %s", rows[i].text, error != NULL ? error->message : "accepted");
    if (error != NULL)
      t_assert_error(&error, QV_ERROR_FORMAT, rows[i].part);
  }
}

static void test_bound(void)
{
  for (int over = 0; over < 2; over++) {
    g_autoptr(GString) text = g_string_new("{'v':1,'images':[");
    for (int i = 0; i < 256 + over; i++)
      g_string_append_printf(text, "%s{'name':'n%d','digest':'" D("aaaa") "','kind':'image-id','platform':'" AMD "'}",
                             i > 0 ? "," : "", i);
    g_string_append(text, "]}");
    g_autoptr(QvImagesLock) lock = parse(text->str, NULL);
    g_assert_cmpint(lock != NULL, ==, !over);
  }
}

static void test_find(void)
{
  g_autoptr(QvImagesLock) lock = parse(LOCK(ENTRY("base", D("aaaa"), AMD) "," ENTRY("base", D("bbbb"), AMD) ","
                                            ENTRY("base", D("cccc"), ARM)), NULL);
  g_assert_cmpstr(qv_images_lock_find(lock, "base", NULL, AMD)->digest, ==, D("aaaa"));
  g_assert_cmpstr(qv_images_lock_find(lock, "base", D("bbbb"), AMD)->digest, ==, D("bbbb"));
  g_assert_cmpstr(qv_images_lock_find(lock, "base", NULL, ARM)->digest, ==, D("cccc"));
  g_assert_null(qv_images_lock_find(lock, "base", D("aaaa"), ARM));
  g_assert_null(qv_images_lock_find(lock, "base", D("dddd"), AMD));
  g_assert_null(qv_images_lock_find(lock, "other", NULL, AMD));
  g_assert_null(qv_images_lock_find(NULL, "base", NULL, AMD));
}

static char *digests(const QvImagesLock *lock)
{
  g_autoptr(GString) text = g_string_new(NULL);
  for (gsize i = 0; i < lock->n; i++)
    g_string_append_printf(text, "%s%s:%c", i > 0 ? " " : "", lock->images[i].name, lock->images[i].digest[7]);
  return g_string_free(g_steal_pointer(&text), FALSE);
}

/* The current one first, one previous, and what an upgrade does to them. */
static void test_put_and_remove(void)
{
  static const struct {
    const char *name, *digest, *want;
  } puts[] = {
    { "base", D("aaaa"), "base:a" },          { "base", D("bbbb"), "base:b base:a" },
    { "node", D("aaaa"), "node:a base:b base:a" }, { "base", D("cccc"), "base:c node:a base:b" },
    { "base", D("bbbb"), "base:b base:c node:a" }, { "base", D("bbbb"), "base:b base:c node:a" },
  };
  g_autoptr(QvImagesLock) lock = qv_images_lock_new();
  for (gsize i = 0; i < G_N_ELEMENTS(puts); i++) {
    QvImage image = { .name = (char *)puts[i].name, .digest = (char *)puts[i].digest, .platform = (char *)AMD,
                      .rootfs_file = (char *)"x/y", .rootfs_sha256 = (char *)T_HEX64, .vm_rootfs = (char *)"v/r",
                      .vm_rootfs_sha256 = (char *)T_HEX64, .vm_kernel = (char *)"v/k", .vm_kernel_sha256 = (char *)T_HEX64 };
    qv_images_lock_put(lock, &image);
    g_autofree char *got = digests(lock);
    g_assert_cmpstr(got, ==, puts[i].want);
    gsize n = 0;
    GError *error = NULL;
    g_autofree char *text = qv_images_lock_format(lock, &n, &error);
    g_assert_no_error(error);
    g_assert_cmpint(text[n - 1], ==, '\n');
    g_autoptr(QvImagesLock) again = qv_images_lock_parse(text, n, &error);
    g_assert_no_error(error);
    g_autofree char *read = digests(again);
    g_assert_cmpstr(read, ==, puts[i].want);
    g_assert_cmpstr(again->images[0].rootfs_file, ==, "x/y");
    g_assert_cmpstr(again->images[0].vm_kernel, ==, "v/k");
  }
  /* An entry of the lock itself may be put. */
  qv_images_lock_put(lock, &lock->images[1]);
  g_autofree char *swapped = digests(lock);
  g_assert_cmpstr(swapped, ==, "base:c base:b node:a");
  g_assert_false(qv_images_lock_remove(lock, "base", D("aaaa"), AMD));
  g_assert_false(qv_images_lock_remove(lock, "base", D("bbbb"), ARM));
  g_assert_true(qv_images_lock_remove(lock, "base", D("bbbb"), AMD));
  g_autofree char *removed = digests(lock);
  g_assert_cmpstr(removed, ==, "base:c node:a");
}

/* What cannot be read back is not written. */
static void test_format_refuses(void)
{
  GError *error = NULL;
  gsize n = 0;
  QvImage image = { .name = (char *)"b/d", .digest = (char *)D("aaaa"), .platform = (char *)AMD };
  g_autoptr(QvImagesLock) lock = qv_images_lock_new();
  qv_images_lock_put(lock, &image);
  g_assert_null(qv_images_lock_format(lock, &n, &error));
  t_assert_error(&error, QV_ERROR_FORMAT, "name");
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/images-lock/rows", test_rows);
  g_test_add_func("/images-lock/bound", test_bound);
  g_test_add_func("/images-lock/find", test_find);
  g_test_add_func("/images-lock/put-and-remove", test_put_and_remove);
  g_test_add_func("/images-lock/format-refuses", test_format_refuses);
  return g_test_run();
}
