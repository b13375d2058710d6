/* SPDX-License-Identifier: Apache-2.0 */
/* quavon images */
#include "images/images.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/error.h"
#include "cli/programs.h"
#include "cli/verb.h"

static int fail(const GError *error)
{
  qv_complain("%s", error->message);
  return error->domain == QV_ERROR && error->code == QV_ERROR_NOT_FOUND ? QV_CLI_NO_INPUT : QV_CLI_FAILED;
}

static void print_line(const char *line, gpointer data)
{
  fprintf(stderr, "%s\n", line);
}

static int build(int argc, char **argv, const char *lock_file)
{
  g_autoptr(GError) error = NULL;
  if (argc > 2)
    return qv_usage("images", "build takes one name");
  if (geteuid() != 0) {
    qv_complain("building an image needs root: use `sudo quavon images build`");
    return QV_CLI_NO_PERMISSION;
  }
  const char *name = argc > 1 ? argv[1] : "base";
  if (strchr(name, '/') != NULL || name[0] == '.' || name[0] == '-')
    return qv_usage("images", "`%s` is no image's name", name);
  g_autofree char *source_path = g_build_filename("deploy", "images", name, NULL);
  g_autofree char *installed_path = g_build_filename("images", name, NULL);
  g_autofree char *recipe = qv_data_find(source_path, installed_path, &error);
  g_autofree char *entry = recipe != NULL ? qv_program_find("entry", "entry", &error) : NULL;
  if (entry == NULL)
    return fail(error);
  QvImagesBuild what = { .name = name, .recipe_dir = recipe, .entry_file = entry, .lock_file = lock_file,
                         .progress = print_line };
  g_autofree char *digest = qv_images_build(&what, &error);
  if (digest == NULL)
    return fail(error);
  puts(digest);
  return QV_CLI_OK;
}

static int list(int argc, char **argv, const char *lock_file)
{
  g_autoptr(GError) error = NULL;
  if (argc > 1)
    return qv_usage("images", "list takes no arguments");
  g_autoptr(GPtrArray) images = qv_images_list(lock_file, &error);
  if (images == NULL)
    return fail(error);
  for (guint i = 0; i < images->len; i++) {
    const QvStoredImage *image = g_ptr_array_index(images, i);
    g_autofree char *size = image->size_bytes < 0 ? g_strdup("absent") : qv_size_text((guint64)image->size_bytes);
    printf("%-16s %-12s %s  %s%s\n", image->name, image->platform, image->digest, size,
           image->current ? "" : "  previous");
  }
  return QV_CLI_OK;
}

static int verify(int argc, char **argv, const char *lock_file)
{
  g_autoptr(GError) error = NULL;
  guint checked_n = 0;
  if (argc > 2)
    return qv_usage("images", "verify takes one name");
  if (!qv_images_verify(lock_file, argc > 1 ? argv[1] : NULL, &checked_n, &error))
    return fail(error);
  printf("%u images are what the lock says\n", checked_n);
  return QV_CLI_OK;
}

static int prune(int argc, char **argv, const char *lock_file)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) removed = NULL;
  gboolean previous = argc == 2 && strcmp(argv[1], "--previous") == 0;
  if (argc > 1 && !previous)
    return qv_usage("images", "prune takes --previous or nothing");
  if (!qv_images_prune(lock_file, previous, &removed, &error))
    return fail(error);
  for (guint i = 0; i < removed->len; i++)
    puts(g_ptr_array_index(removed, i));
  return QV_CLI_OK;
}

int qv_verb_images(int argc, char **argv)
{
  static const struct {
    const char *name;
    int (*run)(int argc, char **argv, const char *lock_file);
  } actions[] = { { "build", build }, { "list", list }, { "verify", verify }, { "prune", prune } };
  int status = QV_CLI_OK;
  if (!qv_options_parse("images", NULL, &argc, &argv, &status))
    return status;
  g_autoptr(GError) error = NULL;
  g_auto(GStrv) environment = g_get_environ();
  g_autoptr(QvConfig) config = qv_config_load((const char *const *)environment, &error);
  if (config == NULL) {
    qv_complain("%s", error->message);
    return QV_CLI_CONFIG;
  }
  g_autofree char *lock_file = qv_config_images_file(config);
  for (guint i = 0; argc > 1 && i < G_N_ELEMENTS(actions); i++) {
    if (strcmp(argv[1], actions[i].name) == 0)
      return actions[i].run(argc - 1, argv + 1, lock_file);
  }
  return qv_usage("images", argc > 1 ? "build, list, verify or prune, not `%s`" : "build, list, verify or prune%s",
                  argc > 1 ? argv[1] : "");
}
