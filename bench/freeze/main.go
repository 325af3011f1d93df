// Command freeze records the files that mojo-patch writes, to prove that a change of the code changes no output. It
// runs every mode of the command line on every model, and records the digests of the files and of the JSON report for
// each run.
//
//	go run ./bench/freeze [-write] [-table FILE] [-tool FILE] [-jobs N] [-only REGEXP] DIR…
//
// It prints the runs that differ from the table and exits with 1 if there are any. With -write it records them instead.
// It needs onnxruntime and the kernel library: without them other sites are fused, and checked in another way.
// It skips models that the table lists and the folders lack, and prints their number.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/ort"
)

func main() {
	var f freezer
	table := flag.String("table", "bench/freeze/table.txt", "the `file` of recorded digests")
	write := flag.Bool("write", false, "record the digests instead of comparing them")
	only := flag.String("only", "", "run only models whose path matches this `regexp`")
	flag.StringVar(&f.tool, "tool", "", "the `program` to run (default: built from this checkout)")
	flag.IntVar(&f.jobs, "jobs", runtime.NumCPU(), "how many models to run at once")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: freeze [flags] DIR...")
		os.Exit(2)
	}
	same, err := run(&f, *table, *only, *write, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "freeze:", err)
		os.Exit(4)
	}
	if !same {
		os.Exit(1)
	}
}

func run(f *freezer, file, only string, write bool, dirs []string) (bool, error) {
	pick, err := regexp.Compile(only)
	if err != nil {
		return false, fmt.Errorf("-only: %w", err)
	}
	recorded, err := readTable(file)
	if err != nil && !(write && errors.Is(err, os.ErrNotExist)) {
		return false, err
	}
	if err := libraries(f.tool); err != nil {
		return false, err
	}
	if f.dir, err = os.MkdirTemp("", "freeze"); err != nil {
		return false, err
	}
	defer os.RemoveAll(f.dir)
	if f.tool == "" {
		if f.tool, err = build(f.dir); err != nil {
			return false, err
		}
	}
	paths, err := find(dirs, pick)
	if err != nil {
		return false, err
	}
	found, err := f.models(paths)
	if err != nil {
		return false, err
	}
	if write {
		for name, row := range found {
			recorded[name] = row
		}
		return true, recorded.write(file)
	}
	return found.compare(recorded), nil
}

// libraries returns an error unless the program will find onnxruntime and the kernel library. Without them it exits
// with 0 all the same, and its files and reports are not those of the table.
func libraries(tool string) error {
	beside := ""
	if tool != "" && os.Getenv(op.LibraryVariable) == "" {
		beside = filepath.Dir(tool)
	}
	if _, err := op.FindLibrary(beside); err != nil {
		return fmt.Errorf("the table is of runs with the kernel library: set %s, or run make freeze: %w",
			op.LibraryVariable, err)
	}
	if _, err := ort.Find(""); err != nil {
		return fmt.Errorf("the table is of runs with onnxruntime: set %s, or run make freeze: %w",
			ort.LibraryVariable, err)
	}
	return nil
}

// model is a file and its name in the table, which does not depend on the folder's location.
type model struct{ name, path string }

// find lists the models below the folders. Their names begin with the name of the folder.
func find(dirs []string, pick *regexp.Regexp) ([]model, error) {
	var found []model
	for _, dir := range dirs {
		root := filepath.Dir(filepath.Clean(dir))
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".onnx" {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err == nil && pick.MatchString(name) {
				found = append(found, model{filepath.ToSlash(name), path})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("found no .onnx files in %s", strings.Join(dirs, ", "))
	}
	return found, nil
}

// build compiles the program with a fixed version, because patched models contain it.
func build(dir string) (string, error) {
	tool := filepath.Join(dir, "mojo-patch")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=freeze", "-o", tool,
		"./cmd/mojo-patch")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	return tool, nil
}

// models runs every mode on every model.
func (f *freezer) models(models []model) (table, error) {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		first error
		rows  = table{}
		next  = make(chan model)
	)
	for range f.jobs {
		wait.Go(func() {
			for m := range next {
				row, err := f.model(m)
				mu.Lock()
				if err != nil && first == nil {
					first = fmt.Errorf("%s: %w", m.path, err)
				}
				rows[m.name] = row
				mu.Unlock()
			}
		})
	}
	for _, m := range models {
		next <- m
	}
	close(next)
	wait.Wait()
	return rows, first
}
