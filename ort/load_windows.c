#include "shim.h"

#include <stdlib.h>
#include <string.h>
#include <windows.h>

enum { LONGEST = 32768 };  // of a path, in characters

// to_wide and to_utf8 return copies that the caller frees, or NULL.
static wchar_t *to_wide(const char *text) {
  int n = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
  wchar_t *wide = n > 0 ? malloc((size_t)n * sizeof *wide) : NULL;
  if (wide) MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, n);
  return wide;
}

static char *to_utf8(const wchar_t *wide) {
  int n = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
  char *text = n > 0 ? malloc((size_t)n) : NULL;
  if (text) WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, n, NULL, NULL);
  return text;
}

static char *last_error(void) {
  DWORD code = GetLastError();
  wchar_t *wide = NULL;
  DWORD n = FormatMessageW(FORMAT_MESSAGE_ALLOCATE_BUFFER | FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS,
                           NULL, code, 0, (wchar_t *)&wide, 0, NULL);
  char *text = n ? to_utf8(wide) : NULL;
  LocalFree(wide);
  return text ? text : strdup("the system gives no reason");
}

char *mojo_load(const char *path, void **handle, const OrtApiBase **base, char **file) {
  wchar_t *wide = to_wide(path);
  if (!wide) return strdup("its path is not valid UTF-8");
  // The working directory is not searched, neither for the library nor for its dependencies.
  SetDllDirectoryW(L"");
  // The library's own dependencies are beside it. A bare name is looked up in the system's own folders.
  DWORD flags = strpbrk(path, "/\\") ? LOAD_WITH_ALTERED_SEARCH_PATH : LOAD_LIBRARY_SEARCH_SYSTEM32;
  wchar_t *full = calloc(LONGEST, sizeof *full);
  if (full && flags == LOAD_WITH_ALTERED_SEARCH_PATH) GetFullPathNameW(wide, LONGEST, full, NULL);
  HMODULE module = LoadLibraryExW(full && *full ? full : wide, NULL, flags);
  free(wide);
  if (!module) {
    free(full);
    return last_error();
  }
  const OrtApiBase *(*entry)(void) = (const OrtApiBase *(*)(void))(void *)GetProcAddress(module, "OrtGetApiBase");
  if (!entry) {
    free(full);
    FreeLibrary(module);
    return strdup("it has no symbol OrtGetApiBase, so it is not onnxruntime");
  }
  *file = full && GetModuleFileNameW(module, full, LONGEST) ? to_utf8(full) : NULL;
  if (!*file) *file = strdup(path);
  free(full);
  *handle = module;
  *base = entry();
  return NULL;
}

void mojo_unload(void *handle) { FreeLibrary(handle); }

void mojo_collectives(const char *path, const char *function) {  // the kernels have no collectives on Windows
  (void)path, (void)function;
}
