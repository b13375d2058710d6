/* SPDX-License-Identifier: Apache-2.0 */
/* quavon images */
#include "images/images.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/error.h"
#include "base/fd.h"
#include "cli/images_load.h"
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

static gboolean is_name(const char *name)
{
  return strchr(name, '/') == NULL && name[0] != '.' && name[0] != '-';
}

/* Refuses to pour an archive over a terminal. OUTPUT NULL or "-": standard output. */
static int export_image(const char *lock_file, const char *name, const char *output)
{
  g_autoptr(GError) error = NULL;
  gboolean to_stdout = output == NULL || strcmp(output, "-") == 0;
  const char *at = strchr(name, '@');
  g_autofree char *plain = at != NULL ? g_strndup(name, (gsize)(at - name)) : g_strdup(name);
  if (to_stdout && isatty(STDOUT_FILENO))
    return qv_usage("images", "the archive is not for a terminal: give it a pipe, or --output FILE");
  if (to_stdout)
    return qv_images_export(lock_file, plain, at != NULL ? at + 1 : NULL, STDOUT_FILENO, &error) ? QV_CLI_OK : fail(error);
  g_autofree char *partial = g_strconcat(output, ".partial", NULL);
  QV_AUTOFD int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) {
    qv_complain("%s: %s", partial, g_strerror(errno));
    return QV_CLI_FAILED;
  }
  if (!qv_images_export(lock_file, plain, at != NULL ? at + 1 : NULL, fd, &error)) {
    g_unlink(partial);
    return fail(error);
  }
  if (g_rename(partial, output) < 0) {
    qv_complain("%s: %s", output, g_strerror(errno));
    g_unlink(partial);
    return QV_CLI_FAILED;
  }
  return QV_CLI_OK;
}

static int export(int argc, char **argv, const char *lock_file)
{
  g_autofree char *output = NULL;
  const GOptionEntry entries[] = {
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &output, "File; standard output without it", "FILE" },
    { NULL }
  };
  int status = QV_CLI_OK;
  if (!qv_options_parse("images", entries, &argc, &argv, &status))
    return status;
  if (argc != 2)
    return qv_usage("images", "export takes one name");
  return export_image(lock_file, argv[1], output);
}

static int build(int argc, char **argv, const char *lock_file)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *from = NULL, *recipe = NULL, *archive = NULL;
  const GOptionEntry entries[] = {
    { "from", 0, 0, G_OPTION_ARG_STRING, &from, "An image to build on", "IMAGE@sha256:HEX" },
    { "recipe", 0, 0, G_OPTION_ARG_FILENAME, &recipe, "Folder with a recipe", "DIR" },
    { "docker-archive", 0, 0, G_OPTION_ARG_FILENAME, &archive, "Also write it for docker load", "FILE" },
    { NULL }
  };
  int status = QV_CLI_OK;
  if (!qv_options_parse("images", entries, &argc, &argv, &status))
    return status;
  if (argc > 2)
    return qv_usage("images", "build takes one name");
  if (geteuid() != 0) {
    qv_complain("building an image needs root: use `sudo quavon images build`");
    return QV_CLI_NO_PERMISSION;
  }
  const char *name = argc > 1 ? argv[1] : "base";
  if (!is_name(name))
    return qv_usage("images", "`%s` is no image's name", name);
  if (recipe == NULL) {
    /* On an existing image the packages of `base` are not used, its other steps are. */
    const char *folder = from != NULL ? "base" : name;
    g_autofree char *source_path = g_build_filename("deploy", "images", "sandbox", folder, NULL);
    g_autofree char *installed_path = g_build_filename("images", "sandbox", folder, NULL);
    recipe = qv_data_find(source_path, installed_path, &error);
  }
  g_autofree char *entry = recipe != NULL ? qv_program_find("entry", "entry", &error) : NULL;
  if (entry == NULL)
    return fail(error);
  QvImagesBuild what = { .name = name, .recipe_dir = recipe, .from = from, .entry_file = entry, .lock_file = lock_file,
                         .progress = print_line };
  g_autofree char *digest = qv_images_build(&what, &error);
  if (digest == NULL)
    return fail(error);
  status = archive != NULL ? export_image(lock_file, name, archive) : QV_CLI_OK;
  puts(digest);
  return status;
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
  } actions[] = { { "build", build }, { "export", export }, { "list", list }, { "verify", verify }, { "prune", prune } };
  int status = QV_CLI_OK;
  if (!qv_options_parse("images", NULL, &argc, &argv, &status))
    return status;
  g_autoptr(QvConfig) config = qv_verb_config();
  if (config == NULL)
    return QV_CLI_CONFIG;
  g_autofree char *lock_file = qv_config_images_file(config);
  if (argc > 1 && strcmp(argv[1], "load") == 0)
    return qv_images_load_run(argc - 1, argv + 1, lock_file, config->docker_socket);
  for (guint i = 0; argc > 1 && i < G_N_ELEMENTS(actions); i++) {
    if (strcmp(argv[1], actions[i].name) == 0)
      return actions[i].run(argc - 1, argv + 1, lock_file);
  }
  return qv_usage("images", argc > 1 ? "build, export, load, list, verify or prune, not `%s`" : "build, export, load, list, verify or prune%s",
                  argc > 1 ? argv[1] : "");
}
