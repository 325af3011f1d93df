//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/rewrite"
)

// nodeTestModels runs inspect and apply on the models of the ONNX node tests. Both must end with a result or an error,
// and if apply fuses something, the outputs must be the recorded ones.
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
	counts := map[outcome]int{}
	for w := range 2 {
		wg.Go(func() {
			out := filepath.Join(b.dir, fmt.Sprintf("node%d.onnx", w))
			for path := range work {
				o, err := b.nodeTest(path, out)
				mu.Lock()
				counts[o]++
				r.check(filepath.Base(filepath.Dir(path)), func() error { return err })
				mu.Unlock()
			}
		})
	}
	for _, path := range list {
		work <- path
	}
	close(work)
	wg.Wait()
	r.note = fmt.Sprintf("something fused in %d, whose recorded outputs are reproduced; %d refused with an error",
		counts[changed], counts[refused])
	return []*row{r}, nil
}

type outcome int

const (
	unchanged outcome = iota
	changed
	refused
)

func (b *bench) nodeTest(path, out string) (outcome, error) {
	os.Remove(out)
	said, err := exec.Command(b.tool, "inspect", path).CombinedOutput()
	if code := exitCode(err); code != 0 && code != 2 || strings.Contains(string(said), "goroutine ") {
		return unchanged, fmt.Errorf("inspect exits with %d: %s", code, said)
	}
	code, report := b.apply("", nil, path, out, append(anywhere, "--json")...)
	_, missing := os.Stat(out)
	switch {
	case strings.Contains(report, "goroutine ") || code != 0 && code != 2:
		return unchanged, fmt.Errorf("apply exits with %d: %s", code, report)
	case code == 2 && (missing == nil || strings.TrimSpace(report) == ""):
		return refused, errors.New("apply is refused without a word, or wrote something")
	case code == 2:
		return refused, nil
	case missing != nil:
		return unchanged, errors.New("apply wrote nothing")
	}
	var r rewrite.Report
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		return unchanged, err
	}
	if !r.Changed {
		was, errWas := contents(path)
		is, errIs := contents(out)
		if err = errors.Join(errWas, errIs); err != nil || was != is {
			return unchanged, fmt.Errorf("nothing is fused, and the model changed (%v)", err)
		}
		return unchanged, nil
	}
	said, err = exec.Command(b.tool, "diff", out, "--golden", filepath.Dir(path), "--evaluator").CombinedOutput()
	if err != nil {
		return changed, fmt.Errorf("patched, it differs from the recording: %s", said)
	}
	return changed, nil
}
