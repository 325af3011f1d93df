package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/providers"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"mojo-patch": checked})
}

// testEnvironment finds onnxruntime and the kernels for the scripts. If they are missing, scripts skip, unless
// MOJO_REQUIRE_ORT=1 demands them.
func testEnvironment(t *testing.T) (onnxruntime, kernels string) {
	t.Helper()
	lib, err := ort.Find("")
	if err == nil {
		if kernels, err = fused.FindLibrary(""); err != nil && os.Getenv(fused.LibraryVariable) == "" {
			kernels, err = fused.FindLibrary(filepath.Join("..", "..", "build"))
		}
	}
	if err != nil && os.Getenv("MOJO_REQUIRE_ORT") == "1" {
		t.Fatal(err)
	}
	return lib.Path, kernels
}

// TestScripts runs testdata/script/*.txt: command lines with their output, files and exit codes.
func TestScripts(t *testing.T) {
	models, err := filepath.Abs("../../models")
	if err != nil {
		t.Fatal(err)
	}
	faulty, err := filepath.Abs("testdata/faulty/faulty.c")
	if err != nil {
		t.Fatal(err)
	}
	onnxruntime, kernels := testEnvironment(t)
	schemas, err := filepath.Abs(schemaFolder)
	if err != nil {
		t.Fatal(err)
	}
	met := t.TempDir()
	t.Cleanup(func() { // after a complete run of all scripts
		some := strings.Contains(flag.Lookup("test.run").Value.String(), "/")
		if onnxruntime == "" || kernels == "" || some || t.Failed() {
			return
		}
		for name := range schemaTypes {
			if name == "plan" || name == "tune" {
				continue // apply --plan validates plans; tune prints only on a GPU
			}
			if _, err := os.Stat(filepath.Join(met, name)); err != nil {
				t.Errorf("no script prints what docs/schemas/%s.json describes", name)
			}
		}
	})
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("MODELS", models)
			e.Setenv(schemasVariable, schemas)
			e.Setenv(metVariable, met)
			e.Setenv("FAULTY", faulty)
			e.Setenv("GENERATE", filepath.Join(models, "..", "llm", "generate", "testdata"))
			e.Setenv(ort.LibraryVariable, onnxruntime)
			e.Setenv(fused.LibraryVariable, kernels)
			return nil
		},
		Condition: func(c string) (bool, error) {
			switch c {
			case "ort":
				return onnxruntime != "" && kernels != "", nil
			case "ranks": // a library of an older build has no exchanges between ranks
				b, err := os.ReadFile(kernels)
				return bytes.Contains(b, []byte("MojoCollectivesFinalize")), err
			case "cuda", "azure": // azure takes no nodes, and most builds of onnxruntime have it
				facts, err := ort.Providers(onnxruntime)
				return slices.ContainsFunc(facts, func(f ort.ProviderFacts) bool {
					return providers.Same(f.Name, c)
				}), err
			}
			return false, errors.New("unknown condition")
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "block": writeBlock,
			"functions": writeFunctions, "ranks": runRanks, "checkpoint": writeCheckpoint, "faulty": buildFaulty,
			"unlisted": writeUnlisted},
	})
}

// status runs a program and requires its exit code: status CODE PROGRAM [ARGUMENT …].
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM [ARGUMENT ...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// buildFaulty builds a kernel library with a fault from testdata/faulty: faulty FILE.
func buildFaulty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: faulty FILE")
	}
	include := filepath.Join(ts.Getenv("MODELS"), "..", "fused", "kernels", "third_party", "onnxruntime")
	ts.Check(ts.Exec("cc", "-shared", "-fPIC", "-I", include, "-o", ts.MkAbs(args[0]), ts.Getenv("FAULTY"), "-ldl"))
	ts.Setenv("FAULTY_REAL", ts.Getenv(fused.LibraryVariable))
}
