/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the words of `quavon images load`: which images, progress on stderr (one line that is rewritten on a terminal, else a
 * line a stage), and a line an image on standard output. */
#include "cli/images_load.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/verb.h"
#include "images/images.h"

typedef struct {
  const char *name;
  gboolean terminal, said;
  QvImagesLoadStage stage;
  int percent;
} Shown;

static void show(QvImagesLoadStage stage, gint64 done, gint64 total, gpointer data)
{
  static const char *const words[] = {
    [QV_IMAGES_LOAD_PACKING] = "packing", [QV_IMAGES_LOAD_SENDING] = "sending", [QV_IMAGES_LOAD_UNPACKING] = "unpacking"};
  Shown *shown = data;
  int percent = total > 0 ? (int)(MIN(done, total) * 100 / total) : 0;
  gboolean same = shown->said && stage == shown->stage;
  if (same && (!shown->terminal || percent == shown->percent))
    return;
  *shown = (Shown){.name = shown->name, .terminal = shown->terminal, .said = TRUE, .stage = stage, .percent = percent};
  if (shown->terminal)
    fprintf(stderr, "\r\033[Kquavon: %s: %s %d %%", shown->name, words[stage], percent);
  else
    fprintf(stderr, "quavon: %s: %s\n", shown->name, words[stage]);
}

static int load_one(const char *lock_file, const char *socket, const char *name, const char *digest)
{
  g_autoptr(GError) error = NULL;
  gboolean loaded = FALSE;
  Shown shown = {.name = name, .terminal = isatty(STDERR_FILENO)};
  QvImagesLoad load = {.lock_file = lock_file, .name = name, .digest = digest, .socket = socket, .progress = show,
                       .progress_data = &shown};
  gboolean good = qv_images_load(&load, &loaded, &error);
  if (shown.terminal && shown.said)
    fputs("\r\033[K", stderr);
  if (good) {
    printf("%s %s %s\n", name, digest, loaded ? "loaded" : "was there");
    fflush(stdout);
    return QV_CLI_OK;
  }
  qv_complain("%s: %s", name, error->message);
  return g_error_matches(error, QV_ERROR, QV_ERROR_NOT_FOUND) ? QV_CLI_NO_INPUT
         : g_error_matches(error, QV_ERROR, QV_ERROR_GONE)    ? QV_CLI_UNAVAILABLE
                                                              : QV_CLI_FAILED;
}

/* Is it meant by NAME, NAME@DIGEST? A name alone means all of it: jobs that were signed for the previous one still run. */
static gboolean is_meant(const QvStoredImage *image, const char *word)
{
  gsize n = strcspn(word, "@");
  return strlen(image->name) == n && strncmp(image->name, word, n) == 0 &&
         (word[n] == '\0' || strcmp(word + n + 1, image->digest) == 0);
}

/* WORD NULL: every image of this machine. */
static int load_meant(const GPtrArray *images, const char *lock_file, const char *socket, const char *word)
{
  guint meant = 0;
  for (guint i = 0; i < images->len; i++) {
    const QvStoredImage *image = images->pdata[i];
    if (!image->fits || (word != NULL && !is_meant(image, word)))
      continue;
    meant++;
    if (image->is_repository) {
      qv_complain("%s is a repository's: docker pull REPOSITORY@%s", image->name, image->digest);
      if (word != NULL)
        return QV_CLI_FAILED;
      continue;
    }
    int status = load_one(lock_file, socket, image->name, image->digest);
    if (status != QV_CLI_OK)
      return status;
  }
  if (meant > 0)
    return QV_CLI_OK;
  qv_complain("%s has no image %s for this machine", lock_file, word != NULL ? word : "at all");
  return QV_CLI_NO_INPUT;
}

int qv_images_load_run(int argc, char **argv, const char *lock_file, const char *socket)
{
  g_autoptr(GError) error = NULL;
  int status = QV_CLI_OK;
  g_autoptr(GPtrArray) images = qv_images_list(lock_file, &error);
  if (images == NULL) {
    qv_complain("%s", error->message);
    return g_error_matches(error, QV_ERROR, QV_ERROR_NOT_FOUND) ? QV_CLI_NO_INPUT : QV_CLI_FAILED;
  }
  if (argc < 2)
    return load_meant(images, lock_file, socket, NULL);
  for (int i = 1; i < argc && status == QV_CLI_OK; i++)
    status = load_meant(images, lock_file, socket, argv[i]);
  return status;
}
