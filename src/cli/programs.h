/* SPDX-License-Identifier: Apache-2.0 */
/* Where the other programs and files of this project are: beside this program when it runs from the
 * tree that built it, else where they were installed. */
#pragma once

#include <glib.h>

/* ROOM: the folder of src that builds the program. NULL with NOT_FOUND, naming the places that were tried. */
char *qv_program_find(const char *room, const char *name, GError **error);

/* A file of the source tree ("deploy/images"), or its installed copy below the data folder ("images"). */
char *qv_data_find(const char *source_path, const char *installed_path, GError **error);
