/* SPDX-License-Identifier: Apache-2.0 */
/* build_image NAME RECIPE ENTRY LOCK: builds an image, as `quavon images build` does, and drops its previous one.
 * build_image --current NAME LOCK: the hex of the current image's digest. */
#include <glib.h>
#include <stdio.h>
#include <string.h>

#include "images/images.h"

static void print_line(const char *line, gpointer data)
{
  printf("%s\n", line);
  fflush(stdout);
}

static int fail(GError *error)
{
  fprintf(stderr, "build_image: %s\n", error->message);
  g_error_free(error);
  return 1;
}

static int print_current(const char *name, const char *lock_file)
{
  GError *error = NULL;
  g_autoptr(GPtrArray) images = qv_images_list(lock_file, &error);
  if (images == NULL)
    return fail(error);
  for (guint i = 0; i < images->len; i++) {
    const QvStoredImage *image = images->pdata[i];
    if (image->current && strcmp(image->name, name) == 0)
      return printf("%s\n", image->digest + strlen("sha256:")) < 0;
  }
  return 1;
}

int main(int argc, char **argv)
{
  if (argc == 4 && strcmp(argv[1], "--current") == 0)
    return print_current(argv[2], argv[3]);
  if (argc != 5) {
    fprintf(stderr, "usage: build_image NAME RECIPE ENTRY LOCK | --current NAME LOCK\n");
    return 64;
  }
  QvImagesBuild build = {.name = argv[1], .recipe_dir = argv[2], .entry_file = argv[3], .lock_file = argv[4],
                         .progress = print_line};
  GError *error = NULL;
  g_autofree char *digest = qv_images_build(&build, &error);
  if (digest == NULL)
    return fail(error);
  g_autoptr(GPtrArray) removed = NULL;
  if (!qv_images_prune(argv[4], TRUE, &removed, &error))
    return fail(error);
  printf("%s\n", digest);
  return 0;
}
