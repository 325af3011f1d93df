// Command zoo tests mojo-patch on a folder of real exports, DIR or DIR/models: every NAME.onnx has goldens, NAME.npz or
// a folder NAME of ONNX test data (test_data_set_0, …). It patches the model, compares the fused blocks with
// truth.json, and runs the result in onnxruntime with the kernels, in onnxruntime without them, and in the built-in
// evaluator, each against the goldens at every recorded shape.
//
//	go run ./bench/zoo [-only REGEXP] [-library libonnxruntime.so] [-kernels libmojo_ops.so] DIR
//
// It prints Markdown, and exits with 1 if a model differs from its goldens or has more fused blocks than exist.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/mojo-patch/mojo-patch/models"
)

func main() {
	only := flag.String("only", "", "models whose name matches this `regexp`")
	library := flag.String("library", "", "onnxruntime's shared `file`")
	kernels := flag.String("kernels", "", "the kernel library's `file`")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: zoo [flags] DIR")
		os.Exit(2)
	}
	ok, err := run(flag.Arg(0), *only, &runner{library: *library, kernels: *kernels})
	if err != nil {
		fmt.Fprintln(os.Stderr, "zoo:", err)
		os.Exit(4)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(dir, only string, r *runner) (bool, error) {
	pick, err := regexp.Compile(only)
	if err != nil {
		return false, err
	}
	files, err := exports(dir)
	if err != nil {
		return false, err
	}
	truths, err := models.ReadTruth(filepath.Dir(files[0]))
	if err != nil {
		return false, err
	}
	if r.dir, err = os.MkdirTemp("", "zoo"); err != nil {
		return false, err
	}
	defer os.RemoveAll(r.dir)
	fmt.Println(header)
	good, count := true, 0
	var fused, all models.Blocks
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".onnx")
		if !pick.MatchString(name) {
			continue
		}
		count++
		row := r.model(file, name, truths)
		good = good && row.ok
		fmt.Println(row)
		fused, all = fused.Plus(row.fused), all.Plus(row.all)
	}
	fmt.Printf("\n%d models: RMSNorm %d of %d, LayerNorm %d of %d, rotary %d of %d, GLU %d of %d, router %d of %d, "+
		"MoE %d of %d.\n", count,
		fused.RMSNorm, all.RMSNorm, fused.LayerNorm, all.LayerNorm, fused.Rope, all.Rope, fused.GLU, all.GLU,
		fused.Router, all.Router, fused.MoE, all.MoE)
	return good && count > 0, nil
}

// exports lists the models in dir, or else in dir/models.
func exports(dir string) ([]string, error) {
	for _, d := range []string{dir, filepath.Join(dir, "models")} {
		files, err := filepath.Glob(filepath.Join(d, "*.onnx"))
		if err != nil {
			return nil, err
		}
		if len(files) > 0 {
			return files, nil
		}
	}
	return nil, fmt.Errorf("neither %s nor its folder models holds .onnx files", dir)
}

// goldens finds the recorded cases of a model: NAME.npz, or the folder NAME, beside NAME.onnx.
func goldens(model string) (string, error) {
	name := strings.TrimSuffix(model, ".onnx")
	for _, path := range []string{name + ".npz", name} {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s has no goldens: neither %s.npz nor a folder %s", model, name, name)
}
