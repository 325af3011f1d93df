package layers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/mojo-patch/mojo-patch/"

// room is a folder with all packages below it that are not in rooms below it.
type room struct {
	path string
	uses []string // the other rooms that its packages may import; nil for all
}

// rooms lists the module from the bottom up: a room may only use rooms before it.
var rooms = []room{
	{"internal/atomicfile", []string{}},
	{"internal/child", []string{}},
	{"internal/cputime", []string{}},
	{"internal/delta", []string{}},
	{"internal/english", []string{}},
	{"internal/launch", []string{}},
	{"internal/layers", []string{}},
	{"internal/libpath", []string{}},
	{"internal/regular", []string{}},
	{"internal/mmap", []string{"internal/regular"}},
	{"internal/mutants", []string{}},
	{"internal/progress", []string{}},
	{"internal/prose", []string{}},
	{"internal/vet", []string{}},
	{"docs/schemas", []string{}},
	{"onnx/internal", []string{}},
	{"onnx", []string{"internal/atomicfile", "internal/mmap", "internal/regular", "onnx/internal"}},
	{"onnx/crosscheck", []string{"internal/regular", "onnx"}},
	{"onnx/onnxtest", []string{"onnx"}},
	{"onnx/roles", []string{"onnx"}},
	{"internal/hostile", []string{"onnx", "onnx/onnxtest"}},

	{"internal/blocks", []string{"onnx"}},
	{"reference/internal/elements", []string{"internal/blocks", "onnx"}},
	{"reference/internal/tensor", []string{"onnx", "reference/internal/elements"}},
	{"reference/internal/op", []string{"onnx", "reference/internal/elements", "reference/internal/tensor"}},
	{"reference/internal/ops", []string{"internal/blocks", "onnx", "reference/internal/elements",
		"reference/internal/op", "reference/internal/tensor"}},
	{"reference", []string{"onnx", "reference/internal/elements", "reference/internal/op", "reference/internal/ops",
		"reference/internal/tensor"}},
	{"internal/attentions", []string{"onnx", "onnx/onnxtest", "reference"}},
	{"patterns/reason", []string{"onnx"}},
	{"fused/op", []string{"internal/libpath", "onnx", "patterns/reason"}},
	{"fused", []string{"fused/op", "internal/blocks", "onnx", "patterns/reason"}},
	{"fused/internal/optest", []string{"fused", "fused/op", "onnx", "reference"}},
	{"models", []string{"fused"}},
	{"reference/infer", []string{"fused", "onnx", "reference"}},
	{"ort", []string{"fused", "internal/atomicfile", "internal/libpath", "internal/regular", "onnx"}},
	{"ort/kernels", []string{"onnx"}},
	{"rewrite/edit", []string{"fused", "onnx"}},
	{"golden", []string{"fused", "internal/atomicfile", "internal/blocks", "internal/english", "internal/regular",
		"onnx", "onnx/roles", "rewrite/edit"}},
	{"docs/examples", []string{"fused", "golden", "ort"}},
	{"patterns", []string{"fused", "internal/english", "internal/regular", "onnx", "patterns/reason", "reference",
		"reference/infer"}},
	{"rewrite/convert", []string{"fused", "internal/blocks", "onnx", "reference", "reference/infer", "rewrite/edit"}},
	{"rewrite/target", []string{"fused", "internal/blocks", "internal/english", "onnx", "ort/kernels",
		"patterns/reason", "reference", "reference/infer", "rewrite/convert", "rewrite/edit"}},
	{"rewrite/prove", []string{"fused", "onnx", "reference"}},
	{"rewrite/rewritetest", []string{"fused", "onnx", "onnx/onnxtest", "ort", "patterns", "reference",
		"rewrite/prove"}},
	{"rewrite/pass", []string{"fused", "onnx", "patterns", "reference", "reference/infer", "rewrite/edit",
		"rewrite/prove"}},
	{"rewrite/registry", []string{"fused", "internal/english"}},
	{"rewrite/sites", []string{"fused", "internal/english", "onnx", "patterns",
		"patterns/reason", "reference", "reference/infer", "rewrite/convert", "rewrite/edit",
		"rewrite/pass", "rewrite/prove", "rewrite/registry", "rewrite/target"}},
	{"rewrite/quantized", []string{"fused", "internal/blocks", "internal/english", "onnx", "patterns",
		"patterns/reason", "reference", "reference/infer", "rewrite/convert", "rewrite/edit", "rewrite/pass",
		"rewrite/prove", "rewrite/registry", "rewrite/sites", "rewrite/target"}},
	{"rewrite/cut", []string{"fused", "onnx", "patterns", "reference/infer"}},
	{"rewrite/inline", []string{"fused", "internal/english", "onnx", "patterns", "reference/infer", "rewrite/convert",
		"rewrite/edit", "rewrite/pass"}},
	{"rewrite/heads", []string{"fused", "onnx", "reference", "rewrite/edit", "rewrite/pass",
		"rewrite/prove"}},
	{"rewrite/latentcache", []string{"fused", "internal/english", "onnx", "patterns", "reference", "reference/infer",
		"rewrite/convert", "rewrite/edit", "rewrite/pass", "rewrite/prove"}},
	{"rewrite/pagedcache", []string{"fused", "internal/english", "onnx", "onnx/roles", "patterns", "reference",
		"reference/infer", "rewrite/edit", "rewrite/pass", "rewrite/prove"}},
	{"rewrite/pagedtarget", []string{"fused", "onnx", "reference", "reference/infer", "rewrite/edit", "rewrite/pass",
		"rewrite/prove", "rewrite/sites", "rewrite/target"}},
	{"rewrite/staticcache", []string{"fused", "internal/english", "onnx", "onnx/roles", "patterns", "patterns/reason",
		"reference", "reference/infer", "rewrite/edit", "rewrite/pass", "rewrite/prove"}},
	{"rewrite/precision", []string{"golden", "internal/english", "onnx", "reference", "rewrite/convert", "rewrite/pass",
		"rewrite/prove"}},
	{"rewrite/streams", []string{"fused", "golden", "internal/blocks", "internal/english", "onnx", "reference",
		"reference/infer", "rewrite/convert", "rewrite/edit", "rewrite/pass", "rewrite/prove"}},
	{"rewrite/dims", []string{"golden", "onnx", "onnx/roles", "reference", "rewrite/edit", "rewrite/pass",
		"rewrite/prove"}},
	{"rewrite/shard", []string{"fused", "internal/blocks", "internal/regular", "onnx", "patterns", "reference",
		"reference/infer", "rewrite/edit", "rewrite/prove"}},
	{"rewrite/products", []string{"fused", "internal/blocks", "onnx", "reference", "rewrite/edit", "rewrite/pass",
		"rewrite/prove"}},
	{"rewrite/sampling", []string{"fused", "onnx", "onnx/roles", "reference", "rewrite/edit", "rewrite/pass",
		"rewrite/prove"}},
	{"rewrite/runson", []string{"fused", "internal/english", "onnx", "ort/kernels", "reference", "reference/infer",
		"rewrite/convert", "rewrite/edit", "rewrite/pass", "rewrite/prove"}},
	{"rewrite", []string{
		"fused", "golden", "internal/atomicfile", "internal/blocks", "internal/english", "internal/regular", "onnx",
		"onnx/roles", "patterns", "patterns/reason", "reference", "reference/infer", "rewrite/convert", "rewrite/dims",
		"rewrite/edit", "rewrite/heads", "rewrite/inline", "rewrite/latentcache", "rewrite/pagedcache",
		"rewrite/pagedtarget", "rewrite/pass", "rewrite/precision",
		"rewrite/products",
		"rewrite/prove",
		"rewrite/quantized", "rewrite/registry", "rewrite/runson", "rewrite/sampling",
		"rewrite/sites", "rewrite/staticcache",
		"rewrite/streams",
		"rewrite/target"}},
	{"rewrite/applytest", []string{"onnx", "rewrite", "rewrite/target"}},
	{"trace", []string{"fused", "golden", "onnx", "patterns", "reference", "reference/infer", "rewrite",
		"rewrite/edit"}},
	{"trace/ranges", []string{"golden", "internal/blocks", "onnx", "trace"}},
	{"page", []string{"fused", "golden", "onnx", "patterns", "patterns/reason", "reference", "rewrite",
		"rewrite/registry", "trace", "trace/ranges"}},
	{"rewrite/quantize", []string{"fused", "internal/blocks", "onnx", "onnx/roles", "reference/infer", "rewrite",
		"rewrite/quantized"}},
	{"internal/spellings", []string{"onnx", "reference", "reference/infer", "rewrite", "rewrite/latentcache"}},
	{"llm", []string{
		"fused", "golden", "internal/mmap", "internal/blocks", "internal/regular", "onnx", "onnx/onnxtest",
		"onnx/roles", "ort", "rewrite", "rewrite/edit", "rewrite/quantized", "rewrite/streams"}},
	{"tune", []string{"fused", "golden", "internal/atomicfile", "internal/blocks", "onnx", "ort", "reference/infer"}},
	{"bench", nil},
	{"cmd/mojo-patch/cli", []string{"fused", "golden", "internal/atomicfile", "internal/english", "internal/progress",
		"onnx", "ort", "reference/infer", "rewrite/registry", "rewrite/runson"}},
	{"cmd/mojo-patch/plans", []string{"cmd/mojo-patch/cli", "internal/english", "rewrite/shard"}},
	{"cmd/mojo-patch/compare", []string{"cmd/mojo-patch/cli", "golden", "internal/english", "onnx", "trace"}},
	{"cmd/mojo-patch/session", []string{"cmd/mojo-patch/cli", "fused", "internal/english", "internal/launch", "onnx",
		"ort", "reference", "rewrite/edit", "rewrite/pass", "rewrite/registry", "rewrite/shard", "trace"}},
	{"cmd/mojo-patch/prober", []string{"cmd/mojo-patch/cli", "cmd/mojo-patch/session", "fused", "onnx", "ort",
		"reference", "rewrite/prove", "rewrite/registry", "rewrite/sites"}},
	{"cmd/mojo-patch/feeds", []string{"cmd/mojo-patch/cli", "cmd/mojo-patch/session", "golden", "llm", "onnx",
		"onnx/roles", "reference/infer", "rewrite/dims", "rewrite/shard"}},
	{"cmd/mojo-patch/precision", []string{"cmd/mojo-patch/cli", "cmd/mojo-patch/feeds", "internal/atomicfile", "onnx",
		"rewrite", "rewrite/products", "rewrite/streams"}},
	{"cmd/mojo-patch/parts", []string{"cmd/mojo-patch/cli", "cmd/mojo-patch/feeds", "cmd/mojo-patch/session",
		"golden", "internal/atomicfile", "internal/regular", "onnx", "patterns", "rewrite", "rewrite/cut"}},
	{"cmd/mojo-patch/prompts", []string{"internal/regular", "llm"}},
	{"cmd/mojo-patch/planning", []string{"cmd/mojo-patch/cli", "cmd/mojo-patch/precision", "cmd/mojo-patch/prober",
		"cmd/mojo-patch/session", "docs/schemas", "fused", "golden", "internal/atomicfile", "internal/english",
		"llm", "onnx", "ort", "page", "patterns", "rewrite", "rewrite/edit", "rewrite/inline", "rewrite/pagedcache",
		"rewrite/registry", "rewrite/runson", "rewrite/staticcache", "rewrite/target"}},
	{"cmd", nil},
}

// roomOf returns the index in rooms of a package, by the longest matching path, or -1.
func roomOf(path string) int {
	best := -1
	for i, r := range rooms {
		if (path == r.path || strings.HasPrefix(path, r.path+"/")) &&
			(best < 0 || len(r.path) > len(rooms[best].path)) {
			best = i
		}
	}
	return best
}

// TestRooms checks every import against the table. Tests may import anything except text generation.
func TestRooms(t *testing.T) {
	seen := make([]bool, len(rooms))
	imports := 0
	for file, paths := range importsBelow(t, filepath.Join("..", "..")) {
		folder := filepath.ToSlash(filepath.Dir(file))
		from := roomOf(folder)
		if from < 0 {
			t.Errorf("%s: package %s is in no room of the table", file, folder)
			continue
		}
		seen[from] = true
		for _, path := range paths {
			to := roomOf(path)
			switch {
			case to < 0:
				t.Errorf("%s imports %s, which is in no room of the table", file, path)
			case from == to || rooms[from].uses == nil && rooms[to].uses != nil:
			case strings.HasSuffix(file, "_test.go") && rooms[to].path != "llm":
			case !slices.Contains(rooms[from].uses, rooms[to].path):
				t.Errorf("%s imports %s: %s does not use %s", file, path, rooms[from].path, rooms[to].path)
			}
			imports++
		}
	}
	if imports < 500 {
		t.Errorf("%d imports of this module: the files were not found", imports)
	}
	for i, r := range rooms {
		if !seen[i] {
			t.Errorf("room %s holds no package", r.path)
		}
	}
}

// TestCommandsAreApart demands that no command imports another; the exception is golden, which records by run.
func TestCommandsAreApart(t *testing.T) {
	const program = "cmd/mojo-patch"
	commands := 0
	for file, paths := range importsBelow(t, filepath.Join("..", "..")) {
		folder := filepath.ToSlash(filepath.Dir(file))
		for _, path := range paths {
			if roomOf(path) < 0 || rooms[roomOf(path)].path != "cmd" {
				continue
			}
			commands++
			if folder != program && (folder != program+"/golden" || path != program+"/run") {
				t.Errorf("%s imports the command %s: move what they share below both", file, path)
			}
		}
	}
	if commands < 20 {
		t.Errorf("%d commands: the files were not found", commands)
	}
}

// TestOneWay checks that the table follows its order, so that it has no cycle.
func TestOneWay(t *testing.T) {
	for i, r := range rooms {
		for _, used := range r.uses {
			if !slices.ContainsFunc(rooms[:i], func(below room) bool { return below.path == used }) {
				t.Errorf("room %s uses %s, which does not stand before it", r.path, used)
			}
		}
	}
}

// larger are the packages that have more files than others may have, with their numbers. They must not grow.
var larger = map[string]int{
	"onnx": 41, // one graph, whose fields only its methods change; reading and writing share its tensors' insides
}

// TestSmallPackages bounds the files of each package, without tests.
func TestSmallPackages(t *testing.T) {
	const most = 20
	files := map[string]int{}
	for file := range importsBelow(t, filepath.Join("..", "..")) {
		if !strings.HasSuffix(file, "_test.go") {
			files[filepath.ToSlash(filepath.Dir(file))]++
		}
	}
	if len(files) < 100 {
		t.Errorf("%d packages: the files were not found", len(files))
	}
	for folder, n := range files {
		switch bound, isLarger := larger[folder]; {
		case isLarger && n != bound:
			t.Errorf("%s has %d files, and the list of larger packages has %d: correct the list if they are fewer, "+
				"otherwise move a part of it to a package", folder, n, bound)
		case !isLarger && n > most:
			t.Errorf("%s has %d files, at most %d: move a part of it to a package", folder, n, most)
		}
	}
	for folder, n := range larger {
		if files[folder] == 0 || n <= most {
			t.Errorf("%s need not be in the list of larger packages", folder)
		}
	}
}

// importsBelow returns this module's packages that each Go file imports, whatever its build constraints.
func importsBelow(t *testing.T, root string) map[string][]string {
	imports := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == root {
				return nil
			}
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			name := entry.Name()
			if err == nil || strings.HasPrefix(name, ".") || name == "testdata" || name == "build" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		imports[name] = nil
		for _, spec := range file.Imports {
			if p, err := strconv.Unquote(spec.Path.Value); err == nil && strings.HasPrefix(p, module) {
				imports[name] = append(imports[name], strings.TrimPrefix(p, module))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}
