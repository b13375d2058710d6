/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots in, artefacts out. */
#include <string.h>

#include "base/limits.h"
#include "harness.h"
#include "scenarios.h"
#include "support/zeros.h"

static void test_deletes_and_overlay(void)
{
  HARNESS_OR_SKIP();
  static const File base_files[] = {{"dir/gone.txt", "x"},   {"dir/stays.txt", "x"}, {"keep.txt", "old"},
                                    {"swap/inner.txt", "x"}, {"tree/a/b/c.txt", "x"}, {"tree/d.txt", "x"}, {NULL}};
  static const File over_files[] = {{"keep.txt", "new", TRUE}, {"new/deep/file.txt", "x"}, {"swap", "a file now"}, {NULL}};
  g_autoptr(GByteArray) base = snapshot_new(base_files, FALSE);
  g_autoptr(GByteArray) over = snapshot_new(over_files, FALSE);
  g_autoptr(GByteArray) both = g_byte_array_new();
  g_byte_array_append(both, base->data, base->len);
  g_byte_array_append(both, over->data, over->len);
  json_t *request = request_new(
    base->len,
    json_pack("[o]", step_sh("list", "find . -type f | sort; cat keep.txt; echo; "
                                     "stat -c '%n %Y %a' . dir dir/stays.txt keep.txt new new/deep new/deep/file.txt swap", 0)));
  json_object_set_new(request, "overlay", json_pack("{sI}", "size", (json_int_t)over->len));
  json_object_set_new(request, "deletes",
                      json_pack("[ssssss]", "dir/gone.txt", "swap", "tree", "absent", "absent/too", "keep.txt/not"));
  g_autoptr(Outcome) outcome = harness_run(NULL, request, both);
  outcome_assert_complete(outcome);
  g_assert_cmpstr(outcome_log(outcome, 0), ==,
                  "./dir/stays.txt\n./keep.txt\n./new/deep/file.txt\n./swap\nnew\n"
                  ". 1000000001 755\ndir 1000000000 755\ndir/stays.txt 1000000000 644\nkeep.txt 1000000001 755\n"
                  "new 1000000001 755\nnew/deep 1000000001 755\nnew/deep/file.txt 1000000001 644\n"
                  "swap 1000000001 644\n");
}

static void check_refused(const GByteArray *bytes, gsize base_n, gsize over_n, guint work_mib, const char *code)
{
  const HarnessOptions options = {.work_mib = work_mib};
  json_t *request = request_new(base_n, json_pack("[o]", step_sh("never", "true", 0)));
  json_object_set_new(request, "setup", step_sh("never-either", "true", 0));
  if (over_n > 0)
    json_object_set_new(request, "overlay", json_pack("{sI}", "size", (json_int_t)over_n));
  g_autoptr(Outcome) outcome = harness_run(&options, request, bytes);
  outcome_assert_complete(outcome);
  g_assert_cmpuint(outcome->members->len, ==, 1);
  g_assert_cmpstr(json_string_value(json_object_get(outcome->exit, "status")), ==, "refused");
  g_assert_cmpstr(outcome_code(outcome), ==, code);
}

static void test_refused(void)
{
  HARNESS_OR_SKIP();
  static const File file[] = {{"a", "file"}, {NULL}}, folder[] = {{"a/b", "file"}, {NULL}};
  g_autoptr(GByteArray) one = snapshot_new(file, FALSE), two = snapshot_new(folder, FALSE);
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  g_test_message("not gzip");
  g_byte_array_append(bytes, (const guint8 *)"not a gzip at all", 17);
  check_refused(bytes, 17, 0, 0, "snapshot_refused");
  g_test_message("cut short");
  check_refused(one, one->len - 1, 0, 0, "snapshot_refused");
  g_test_message("empty");
  check_refused(one, 0, 0, 0, "snapshot_refused");
  g_test_message("something behind it, and an overlay that is read all the same");
  g_byte_array_set_size(bytes, 0);
  g_byte_array_append(bytes, one->data, one->len);
  g_byte_array_append(bytes, (const guint8 *)"x", 1);
  g_byte_array_append(bytes, two->data, two->len);
  check_refused(bytes, one->len + 1, two->len, 0, "snapshot_refused");
  g_test_message("a folder over a file");
  g_byte_array_set_size(bytes, 0);
  g_byte_array_append(bytes, one->data, one->len);
  g_byte_array_append(bytes, two->data, two->len);
  check_refused(bytes, one->len, two->len, 0, "snapshot_refused");
  g_test_message("a file over a folder");
  g_byte_array_set_size(bytes, 0);
  g_byte_array_append(bytes, two->data, two->len);
  g_byte_array_append(bytes, one->data, one->len);
  check_refused(bytes, two->len, one->len, 0, "snapshot_refused");
  /* Were the header believed, this would fill the work folder and be "disk". */
  g_test_message("a file of one byte more than a file may have");
  g_autoptr(GByteArray) big = g_bytes_unref_to_array(qv_test_zeros((guint64)QV_SNAPSHOT_FILE_BYTES_MAX + 1));
  check_refused(big, big->len, 0, 0, "snapshot_refused");
}

static void test_base_too_big(void)
{
  HARNESS_OR_SKIP();
  g_autofree char *text = g_strnfill(6 << 20, 'x');
  const File files[] = {{"big", text}, {NULL}};
  g_autoptr(GByteArray) base = snapshot_new(files, FALSE);
  check_refused(base, base->len, 0, 4, "disk");
}

static Outcome *run_collecting(const char *script, json_t *globs, gint64 bytes, gint64 count)
{
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *request = request_new(base->len, json_pack("[o]", step_sh("make", script, 0)));
  json_object_set_new(request, "artefacts", globs);
  json_object_set_new(json_object_get(request, "limits"), "artefactBytes", json_integer(bytes));
  json_object_set_new(json_object_get(request, "limits"), "artefactCount", json_integer(count));
  Outcome *outcome = harness_run(NULL, request, base);
  outcome_assert_complete(outcome);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 0);
  return outcome;
}

/* The paths of the artefacts, each behind a blank. */
static char *collected(const Outcome *outcome)
{
  GString *list = g_string_new(NULL);
  for (guint i = 0; i < outcome->members->len; i++) {
    const Member *member = g_ptr_array_index(outcome->members, i);
    if (g_str_has_prefix(member->path, "artefacts/"))
      g_string_append_printf(list, " %s%s", member->path + 10, member->executable ? "*" : "");
  }
  return g_string_free(list, FALSE);
}

static json_int_t dropped(const Outcome *outcome)
{
  return json_integer_value(json_object_get(outcome->exit, "artefactsDropped"));
}

static void test_artefacts(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome = run_collecting(
    "mkdir -p out/a out/b/c; echo 1 > out/a/x.o; echo 2 > out/a-b.o; echo 3 > out/b/c/y.o; cp /bin/true out/run.o;"
    "echo no > out/z.txt; : > out/empty.o; chmod 755 out/run.o",
    json_pack("[ss]", "out/**/*.o", "out/*.o"), 1 << 20, 16);
  g_autofree char *list = collected(outcome);
  g_assert_cmpstr(list, ==, " out/a-b.o out/a/x.o out/b/c/y.o out/empty.o out/run.o*");
  g_assert_cmpstr(outcome_text(outcome, "artefacts/out/a/x.o"), ==, "1\n");
  g_assert_cmpint(dropped(outcome), ==, 0);
}

static void test_artefact_caps(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome =
    run_collecting("head -c 60 /dev/zero > a; head -c 50 /dev/zero > b; head -c 40 /dev/zero > c; "
                   "truncate -s 40G d; echo > e; echo > f",
                   json_pack("[s]", "?"), 101, 3);
  g_autofree char *list = collected(outcome);
  /* b does not fit behind a, c does; d never; e is the last by count. */
  g_assert_cmpstr(list, ==, " a c e");
  g_assert_cmpint(dropped(outcome), ==, 3);
}

static void test_hostile_artefacts(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome = run_collecting(
    "mkdir real; echo in > real/file; ln -s /etc/passwd link; ln -s /etc etc; ln -s . loop; ln -s real alias;"
    "mkfifo fifo; mkdir .git; echo x > .git/config; echo bad > \"$(printf 'new\\nline')\";"
    "echo bad > \"$(printf 'bad\\377')\"; echo bad > 'back\\slash'; mkdir locked; echo x > locked/in; chmod 0 locked;"
    "echo secret > unreadable; chmod 0 unreadable; ln real/file hard; rm -r zz",
    json_pack("[s]", "**"), 1 << 20, 64);
  g_autofree char *list = collected(outcome);
  g_assert_cmpstr(list, ==, " hard real/file");
  /* .git/config, three names, locked, unreadable */
  g_assert_cmpint(dropped(outcome), ==, 6);
}

/* The folder is moved and something else put in its place: still the same one is used. */
static void test_moved_repository(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *request =
    request_new(base->len, json_pack("[o o]",
                                     step_sh("move", "echo mine > mine; mv /workspace/repo /workspace/other; "
                                                     "ln -s /etc /workspace/repo", 0),
                                     step_sh("where", "ls mine; ls passwd", 0)));
  json_object_set_new(json_array_get(json_object_get(request, "run"), 1), "continueOnFailure", json_true());
  json_object_set_new(request, "artefacts", json_pack("[ss]", "passwd", "mine"));
  g_autoptr(Outcome) outcome = harness_run(NULL, request, base);
  outcome_assert_complete(outcome);
  g_autofree char *list = collected(outcome);
  g_assert_cmpstr(list, ==, " mine");
  g_assert_true(g_str_has_prefix(outcome_log(outcome, 1), "mine\n"));
}

static void test_deep_artefacts(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome =
    run_collecting("zz/hostile deep 3000; mkdir shallow; cd shallow; ../zz/hostile deep 400; cd ..; rm -r zz",
                   json_pack("[s]", "**/leaf.txt"), 1 << 20, 16);
  g_autofree char *list = collected(outcome);
  g_assert_true(g_str_has_prefix(list, " shallow/d/d/"));
  g_assert_null(strchr(list + 1, ' '));
  g_assert_cmpint(dropped(outcome), ==, 1);
}

void add_file_scenarios(void)
{
  g_test_add_func("/entry/deletes-and-overlay", test_deletes_and_overlay);
  g_test_add_func("/entry/refused", test_refused);
  g_test_add_func("/entry/base-too-big", test_base_too_big);
  g_test_add_func("/entry/artefacts", test_artefacts);
  g_test_add_func("/entry/artefact-caps", test_artefact_caps);
  g_test_add_func("/entry/hostile-artefacts", test_hostile_artefacts);
  g_test_add_func("/entry/moved-repository", test_moved_repository);
  g_test_add_func("/entry/deep-artefacts", test_deep_artefacts);
}
