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

/* What was asked for; texts are borrowed. */
typedef struct {
  const char *lock_file, *docker_socket;
  const char *from, *recipe, *archive; /* build */
  const char *output;                  /* export */
  gboolean previous;                   /* prune */
} Asked;

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

static int export(const Asked *asked, int argc, char **argv)
{
  if (argc != 2)
    return qv_usage("images", "export takes one name");
  return export_image(asked->lock_file, argv[1], asked->output);
}

static int build(const Asked *asked, int argc, char **argv)
{
  g_autoptr(GError) error = NULL;
  if (argc > 2)
    return qv_usage("images", "build takes one name");
  if (geteuid() != 0) {
    qv_complain("building an image needs root: use `sudo quavon images build`");
    return QV_CLI_NO_PERMISSION;
  }
  const char *name = argc > 1 ? argv[1] : "base";
  if (!is_name(name))
    return qv_usage("images", "`%s` is no image's name", name);
  g_autofree char *recipe = g_strdup(asked->recipe);
  if (recipe == NULL) {
    /* On an existing image the packages of `base` are not used, its other steps are. */
    const char *folder = asked->from != NULL ? "base" : name;
    g_autofree char *source_path = g_build_filename("deploy", "images", "sandbox", folder, NULL);
    g_autofree char *installed_path = g_build_filename("images", "sandbox", folder, NULL);
    recipe = qv_data_find(source_path, installed_path, &error);
  }
  g_autofree char *entry = recipe != NULL ? qv_program_find("entry", "entry", &error) : NULL;
  if (entry == NULL)
    return fail(error);
  QvImagesBuild what = { .name = name, .recipe_dir = recipe, .from = asked->from, .entry_file = entry,
                         .lock_file = asked->lock_file, .progress = print_line };
  g_autofree char *digest = qv_images_build(&what, &error);
  if (digest == NULL)
    return fail(error);
  int status = asked->archive != NULL ? export_image(asked->lock_file, name, asked->archive) : QV_CLI_OK;
  puts(digest);
  return status;
}

static int load(const Asked *asked, int argc, char **argv)
{
  return qv_images_load_run(argc, argv, asked->lock_file, asked->docker_socket);
}

static int list(const Asked *asked, int argc, char **argv)
{
  g_autoptr(GError) error = NULL;
  if (argc > 1)
    return qv_usage("images", "list takes no arguments");
  g_autoptr(GPtrArray) images = qv_images_list(asked->lock_file, &error);
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

static int verify(const Asked *asked, int argc, char **argv)
{
  g_autoptr(GError) error = NULL;
  guint checked_n = 0;
  if (argc > 2)
    return qv_usage("images", "verify takes one name");
  if (!qv_images_verify(asked->lock_file, argc > 1 ? argv[1] : NULL, &checked_n, &error))
    return fail(error);
  printf("%u images are what the lock says\n", checked_n);
  return QV_CLI_OK;
}

static int prune(const Asked *asked, int argc, char **argv)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) removed = NULL;
  if (argc > 1)
    return qv_usage("images", "prune takes no arguments");
  if (!qv_images_prune(asked->lock_file, asked->previous, &removed, &error))
    return fail(error);
  for (guint i = 0; i < removed->len; i++)
    puts(g_ptr_array_index(removed, i));
  return QV_CLI_OK;
}

/* OPTIONS: the letters of what it takes, as in `said`. */
static const struct {
  const char *name, *options;
  int (*run)(const Asked *asked, int argc, char **argv);
} actions[] = { { "build", "fra", build }, { "export", "o", export }, { "load", "", load },
                { "list", "", list },      { "verify", "", verify },  { "prune", "p", prune } };

/* Runs the action of that number, where it takes all options that were given. */
static int act(guint i, const Asked *asked, int argc, char **argv)
{
  const struct {
    gboolean given;
    const char *name;
    char letter;
  } said[] = { { asked->from != NULL, "from", 'f' },
               { asked->recipe != NULL, "recipe", 'r' },
               { asked->archive != NULL, "docker-archive", 'a' },
               { asked->output != NULL, "output", 'o' },
               { asked->previous, "previous", 'p' } };
  for (guint k = 0; k < G_N_ELEMENTS(said); k++) {
    if (said[k].given && strchr(actions[i].options, said[k].letter) == NULL)
      return qv_usage("images", "%s takes no --%s", actions[i].name, said[k].name);
  }
  return actions[i].run(asked, argc, argv);
}

int qv_verb_images(int argc, char **argv)
{
  g_autofree char *from = NULL, *recipe = NULL, *archive = NULL, *output = NULL;
  gboolean previous = FALSE;
  const GOptionEntry entries[] = {
    { "from", 0, 0, G_OPTION_ARG_STRING, &from, "build: an image to build on", "IMAGE@sha256:HEX" },
    { "recipe", 0, 0, G_OPTION_ARG_FILENAME, &recipe, "build: a folder with a recipe", "DIR" },
    { "docker-archive", 0, 0, G_OPTION_ARG_FILENAME, &archive, "build: also write it for docker load", "FILE" },
    { "output", 'o', 0, G_OPTION_ARG_FILENAME, &output, "export: the archive; standard output without it", "FILE" },
    { "previous", 0, 0, G_OPTION_ARG_NONE, &previous, "prune: the previous images too", NULL },
    { NULL }
  };
  int status = QV_CLI_OK;
  guint i = 0;
  while (argc > 1 && i < G_N_ELEMENTS(actions) && strcmp(argv[1], actions[i].name) != 0)
    i++;
  gboolean named = argc > 1 && i < G_N_ELEMENTS(actions);
  if (named) { /* the action comes before its options */
    argv[1] = argv[0];
    argv++;
    argc--;
  }
  if (!qv_options_parse("images", entries, &argc, &argv, &status))
    return status;
  if (!named)
    return qv_usage("images", "the first word is build, export, load, list, verify or prune");
  g_autoptr(QvConfig) config = qv_verb_config();
  if (config == NULL)
    return QV_CLI_CONFIG;
  g_autofree char *lock_file = qv_config_images_file(config);
  const Asked asked = { .lock_file = lock_file, .docker_socket = config->docker_socket, .from = from, .recipe = recipe,
                        .archive = archive, .output = output, .previous = previous };
  return act(i, &asked, argc, argv);
}
