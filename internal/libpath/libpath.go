// Package libpath holds the common rules of searches for shared libraries. A library is code, so no place that depends
// on the working directory is searched: a folder of models that another user filled must not decide which code runs.
// Only a path on the command line or in a call may be relative, since the caller names that file.
package libpath

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Variable returns the path in an environment variable, or "" if it is not set. A relative path is an error: the
// variable outlives the folder that it was set in.
func Variable(name string) (string, error) {
	path := os.Getenv(name)
	return path, absolute(name, path)
}

// Variables returns the paths in an environment variable that lists several, separated as in PATH. A relative path
// among them is an error.
func Variables(name string) ([]string, error) {
	paths := slices.DeleteFunc(filepath.SplitList(os.Getenv(name)), func(p string) bool { return p == "" })
	for _, p := range paths {
		if err := absolute(name, p); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func absolute(name, path string) error {
	if path == "" || filepath.IsAbs(path) {
		return nil
	}
	return fmt.Errorf("$%s names %q, a path relative to the working directory: set it to an absolute path", name, path)
}

// Folder returns the folder in an environment variable, or "" if it is not set or not an absolute path. Use it for
// variables that other tools set, such as VIRTUAL_ENV: useless values are ignored.
func Folder(name string) string {
	if path := os.Getenv(name); filepath.IsAbs(path) {
		return path
	}
	return ""
}

// Folders returns the absolute paths in an environment variable that lists folders, such as PATH. relative reports
// whether others were left out. An empty entry is relative, since it means the working directory.
func Folders(name string) (list []string, relative bool) {
	value := os.Getenv(name)
	if value == "" {
		return nil, false
	}
	separators := string(filepath.ListSeparator)
	if name == "LD_LIBRARY_PATH" {
		separators += ";" // glibc takes both
	}
	start := 0
	for i := 0; i <= len(value); i++ {
		if i < len(value) && !strings.ContainsRune(separators, rune(value[i])) {
			continue
		}
		if path := strings.Trim(value[start:i], `"`); filepath.IsAbs(path) {
			list = append(list, path)
		} else {
			relative = true
		}
		start = i + 1
	}
	return list, relative
}

// Program returns the folder of the running program, with links resolved, and its installation prefix: the folder above
// bin (on Windows Scripts). A program in any other folder has no prefix, since anyone may own the folder above.
func Program() (folder, prefix string) {
	exe, err := os.Executable()
	if err != nil {
		return "", ""
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	if !filepath.IsAbs(exe) {
		return "", ""
	}
	return filepath.Dir(exe), Prefix(filepath.Dir(exe))
}

// Prefix returns the folder above bin (on Windows Scripts), or "" for a folder of another name.
func Prefix(folder string) string {
	name := filepath.Base(folder)
	if name == "bin" || runtime.GOOS == "windows" && strings.EqualFold(name, "Scripts") {
		return filepath.Dir(folder)
	}
	return ""
}
