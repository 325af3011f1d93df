//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/rewrite"
)

// nodeTestModels runs inspect and apply over the models of the ONNX node tests. Whatever is in them, both must end with
// a result or an error, and where apply fuses something, the outputs must be those that the tests record.
func (b *bench) nodeTestModels() ([]*row, error) {
	r := &row{what: "inspect and apply, models of the ONNX node tests"}
	if b.nodeTests == "" {
		r.note = "not tried: no folder of them is given"
		return []*row{r}, nil
	}
	list, err := filepath.Glob(filepath.Join(b.nodeTests, "*", "model.onnx"))
	if err != nil || len(list) == 0 {
		return nil, fmt.Errorf("no models in %s (%v)", b.nodeTests, err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	work := make(chan string)
	refused, fusedModels := 0, 0
	for w := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			out := filepath.Join(b.dir, fmt.Sprintf("node%d.onnx", w))
			for path := range work {
				fused, errored, problem := b.nodeTest(path, out)
				mu.Lock()
				r.tried++
				if fused {
					fusedModels++
				}
				if errored {
					refused++
				}
				if problem == "" {
					r.held++
				} else {
					r.fail("%s: %s", filepath.Base(filepath.Dir(path)), problem)
				}
				mu.Unlock()
			}
		}()
	}
	for _, path := range list {
		work <- path
	}
	close(work)
	wg.Wait()
	r.note = fmt.Sprintf("something fused in %d, whose recorded outputs are reproduced; %d refused with an error",
		fusedModels, refused)
	return []*row{r}, nil
}

func (b *bench) nodeTest(path, out string) (fused, errored bool, problem string) {
	os.Remove(out)
	said, err := exec.Command(b.tool, "inspect", path).CombinedOutput()
	if code := exitCode(err); code != 0 && code != 2 || strings.Contains(string(said), "goroutine ") {
		return false, false, fmt.Sprintf("inspect exits with %d: %s", code, said)
	}
	code, report := b.apply("", nil, path, "-o", out, "--check-kernels", "off", "--assume-available", "-q", "--json")
	_, missing := os.Stat(out)
	switch {
	case strings.Contains(report, "goroutine ") || code != 0 && code != 2:
		return false, false, fmt.Sprintf("apply exits with %d: %s", code, report)
	case code == 2:
		if missing == nil || strings.TrimSpace(report) == "" {
			return false, true, "apply is refused without a word, or wrote something"
		}
		return false, true, ""
	case missing != nil:
		return false, false, "apply wrote nothing"
	}
	var r rewrite.Report
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		return false, false, err.Error()
	}
	if !r.Changed {
		same, err := contentsEqual(path, out)
		if err != nil || !same {
			return false, false, fmt.Sprintf("nothing is fused, and the model changed (%v)", err)
		}
		return false, false, ""
	}
	data := filepath.Dir(path)
	said, err = exec.Command(b.tool, "diff", out, "--golden", data, "--evaluator").CombinedOutput()
	if err != nil {
		return true, false, fmt.Sprintf("patched, it differs from what is recorded: %s", said)
	}
	return true, false, ""
}

func contentsEqual(a, b string) (bool, error) {
	x, err := contents(a)
	if err != nil {
		return false, err
	}
	y, err := contents(b)
	return x == y, err
}
