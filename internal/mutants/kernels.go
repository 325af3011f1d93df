package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// faultHeader is compiled before every file of the kernels.
const faultHeader = `#include <stdlib.h>
inline const int mojo_fault = getenv("MOJO_FAULT") == nullptr ? 0 : atoi(getenv("MOJO_FAULT"));
`

// kernelTests compiles the CPU kernels with every fault and runs the tests, first without a fault, then with one at a
// time. It compiles the kernels for one instruction set, which takes minutes, and keeps compiled files.
func kernelTests(out string) error {
	folder := filepath.Join(out, "kernels")
	source := filepath.Join(folder, "source")
	if err := plant("fused", source); err != nil {
		return err
	}
	header := filepath.Join(source, "fault.h")
	if err := writeChanged(header, []byte(faultHeader)); err != nil {
		return err
	}
	flags := "-O1 -w -include " + header
	if runtime.GOARCH == "amd64" {
		flags += " -mavx2 -mfma -mf16c" // of the code called portable
	}
	build, cmake := filepath.Join(folder, "build"), cmp.Or(os.Getenv("CMAKE"), "cmake")
	if _, err := output(".", cmake, "-S", filepath.Join(source, "kernels"), "-B", build, "-DMOJO_TESTS=ON",
		"-DCMAKE_BUILD_TYPE=None",
		"-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=generic", "-DCMAKE_CXX_FLAGS="+flags); err != nil {
		return err
	}
	log.Print("compiling the kernels with ", len(faults), " faults")
	for _, target := range []string{"mojo_kernel_test", "mojo_runtime_test", "mojo_ops"} {
		if _, err := output(".", cmake, "--build", build, "--target", target); err != nil {
			return err
		}
	}
	return tryFaults(build, source)
}

func tryFaults(build, source string) error {
	var programs []string
	for _, f := range faults {
		if !slices.Contains(programs, f.test) {
			programs = append(programs, f.test)
		}
	}
	for _, program := range programs {
		log.Print("without a fault: ", program)
		if text, ok := runKernelTest(build, source, program, 0); !ok {
			return fmt.Errorf("%s fails without a fault:\n%s", program, text)
		}
	}
	kinds, total, lives := map[string]*tally{}, &tally{}, 0
	for i, f := range faults {
		_, ok := runKernelTest(build, source, f.test, i+1)
		for _, t := range []*tally{entry(kinds, f.kind), total} {
			t.all++
			if !ok {
				t.killed++
			}
		}
		word := "fails"
		if ok {
			word = "DOES NOT NOTICE"
			lives++
		}
		log.Printf("%2d %s: %q in %s: %s %s", i+1, f.kind, f.with, f.file, f.test, word)
	}
	fmt.Print(table(kinds, map[string]*tally{"all": total}))
	if lives > 0 {
		return fmt.Errorf("%d faults of kernels are not noticed", lives)
	}
	return nil
}

// runKernelTest runs a test program of the kernels, and reports whether it passes.
func runKernelTest(build, source, test string, fault int) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var cmd *exec.Cmd
	switch test {
	case "loops":
		cmd = exec.CommandContext(ctx, filepath.Join(build, "mojo_kernel_test"))
	case "runtime":
		cmd = exec.CommandContext(ctx, filepath.Join(build, "mojo_runtime_test"), "latest")
	default:
		args := append([]string{filepath.Join(source, "kernels", "tests", "ort_test.py"),
			filepath.Join(build, "libmojo_ops.so"),
			"--failfast"}, strings.Fields(test)...)
		cmd = exec.CommandContext(ctx, cmp.Or(os.Getenv("MOJO_PYTHON"), "python3"), args...)
	}
	cmd.Env = append(os.Environ(), fmt.Sprint("MOJO_FAULT=", fault))
	text, err := cmd.CombinedOutput()
	return string(text), err == nil
}

// plant copies the kernels with all faults in them. Unchanged files stay, so that they are not compiled again.
func plant(from, to string) error {
	planted := 0
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, f := range faults {
			if f.file != filepath.ToSlash(name) {
				continue
			}
			if n := bytes.Count(data, []byte(f.old)); n != 1 {
				return fmt.Errorf("fault %d: %s has %q %d times, not once", i+1, path, f.old, n)
			}
			with := strings.ReplaceAll(f.with, "FAULT", fmt.Sprintf("(mojo_fault == %d)", i+1))
			data = bytes.Replace(data, []byte(f.old), []byte(with), 1)
			planted++
		}
		return writeChanged(filepath.Join(to, name), data)
	})
	if err == nil && planted != len(faults) {
		err = errors.New("faults name files that are not there")
	}
	return err
}

func writeChanged(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}
