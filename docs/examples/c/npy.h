// Reads arrays that NumPy wrote, of little-endian int64 or float32.
#ifndef MOJO_EXAMPLE_NPY_H
#define MOJO_EXAMPLE_NPY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NPY_MAX_RANK = 8, NPY_MAX_BYTES = 1 << 30 };

typedef struct {
  int is_float;  // float32, or else int64
  size_t rank, bytes;
  int64_t shape[NPY_MAX_RANK];
  void *data;
} npy;

// npy_read reads FOLDER/CASE.KIND.NAME.npy, with KIND "in" or "out", or ends the program. NAME is the model's, and must
// not lead to another folder.
static npy npy_read(const char *folder, int number, const char *kind, const char *name) {
  char path[4096], header[1024] = "";
  unsigned char start[10];
  int n = snprintf(path, sizeof path, "%s/%d.%s.%s.npy", folder, number, kind, name);
  if (n < 0 || (size_t)n >= sizeof path || strpbrk(name, "/\\")) {
    fprintf(stderr, "%s: this cannot be the name of a file\n", name);
    exit(2);
  }
  FILE *file = fopen(path, "rb");
  size_t length = 0;
  if (file && fread(start, 1, sizeof start, file) == sizeof start && !memcmp(start, "\x93NUMPY\x01", 7))
    length = start[8] + 256u * start[9];
  const char *shape = NULL;
  if (length && length < sizeof header && fread(header, 1, length, file) == length)
    shape = strstr(header, "'shape': (");
  npy a = {.is_float = strstr(header, "'<f4'") != NULL};
  if (!shape || strstr(header, "True") || (!a.is_float && !strstr(header, "'<i8'"))) {
    fprintf(stderr, "%s: no such file, or no array of int64 or float32\n", path);
    exit(2);
  }
  a.bytes = a.is_float ? 4 : 8;
  for (char *at = strchr(shape, '(') + 1, *end; a.rank < NPY_MAX_RANK; at = end + strspn(end, ", ")) {
    a.shape[a.rank] = strtoll(at, &end, 10);
    if (end == at) break;
    if (a.shape[a.rank] < 0 || (a.shape[a.rank] > 0 && a.bytes > NPY_MAX_BYTES / (size_t)a.shape[a.rank])) {
      fprintf(stderr, "%s: its shape is not one of an array that fits into memory\n", path);
      exit(2);
    }
    a.bytes *= (size_t)a.shape[a.rank++];
  }
  a.data = malloc(a.bytes + 1);
  if (!a.data || fread(a.data, 1, a.bytes, file) != a.bytes) {
    fprintf(stderr, "%s: the file is cut off\n", path);
    exit(2);
  }
  fclose(file);
  return a;
}

#endif
