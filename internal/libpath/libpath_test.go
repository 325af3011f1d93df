package libpath

import (
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

func TestVariables(t *testing.T) {
	dir := t.TempDir()
	const name = "LD_LIBRARY_PATH" // which glibc separates by ; as well
	for _, c := range []struct {
		value    string
		variable bool // whether Variable takes it
		folder   string
		folders  []string
		relative bool
	}{
		{"", true, "", nil, false},
		{dir, true, dir, []string{dir}, false},
		{"build", false, "", nil, true},
		{"./build", false, "", nil, true},
		{".", false, "", nil, true},
		{string(filepath.ListSeparator) + dir, false, "", []string{dir}, true},
		{"lib" + string(filepath.ListSeparator) + dir + string(filepath.ListSeparator), false, "", []string{dir}, true},
	} {
		t.Setenv(name, c.value)
		got, err := Variable(name)
		if (err == nil) != c.variable || err == nil && got != c.value {
			t.Errorf("Variable of %q: %q, %v", c.value, got, err)
		}
		if got := Folder(name); got != c.folder {
			t.Errorf("Folder of %q: %q", c.value, got)
		}
		list, relative := Folders(name)
		if !slices.Equal(list, c.folders) || relative != c.relative {
			t.Errorf("Folders of %q: %q, relative %v", c.value, list, relative)
		}
	}
	if runtime.GOOS == "linux" {
		t.Setenv(name, dir+";lib")
		if list, relative := Folders(name); !slices.Equal(list, []string{dir}) || !relative {
			t.Errorf("with a semicolon: %q, %v", list, relative)
		}
	}
	t.Setenv(name, dir+string(filepath.ListSeparator)+dir)
	if list, err := Variables(name); err != nil || !slices.Equal(list, []string{dir, dir}) {
		t.Errorf("Variables: %q, %v", list, err)
	}
	t.Setenv(name, dir+string(filepath.ListSeparator)+"lib")
	if _, err := Variables(name); err == nil {
		t.Error("Variables takes a relative path")
	}
}

func TestProgram(t *testing.T) {
	folder, prefix := Program()
	if !filepath.IsAbs(folder) || prefix != Prefix(folder) {
		t.Errorf("%q, %q", folder, prefix)
	}
	root := t.TempDir()
	for folder, want := range map[string]string{"bin": root, "build": "", ".": "", "download": ""} {
		if got := Prefix(filepath.Join(root, folder)); got != want {
			t.Errorf("the prefix of %s is %q, want %q", folder, got, want)
		}
	}
}
