/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the table of invisible characters. */
#include "base/invisible.h"

#include <stddef.h>

/* Unicode 15.0: the categories Cc, Cf, Zl and Zp of UnicodeData.txt and Default_Ignorable_Code_Point of DerivedCoreProperties.txt,
 * which names unassigned ones too; but for those that the header excepts. */
static const struct {
  uint32_t first, last;
} invisible[] = {
  {0x00, 0x08},       {0x0b, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},
  {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x115f, 0x1160},
  {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},
  {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
  {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool qv_invisible_is(uint32_t code_point)
{
  for (size_t i = 0; i < sizeof invisible / sizeof *invisible && code_point >= invisible[i].first; i++) {
    if (code_point <= invisible[i].last)
      return true;
  }
  return false;
}
