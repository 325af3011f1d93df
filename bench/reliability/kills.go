//go:build unix

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// ballast is the size of the weights that make writing take a while.
const ballast = 24 << 20

// killPart is a way to write: the flags of the run that made the old files, nil for a new output, and of the killed
// run.
type killPart struct {
	what     string
	old, new []string
}

var external = []string{"--external-data-over", "1000"}

var killPlans = []killPart{
	{"killed, new output, one file", nil, []string{}},
	{"killed, new output and OUT.data", nil, external},
	{"killed, one file over one file", []string{}, []string{}},
	{"killed, pair over pair", external, external},
	{"killed, pair over one file", []string{}, external},
	{"killed, one file over pair", external, []string{}},
}

// killParts kills apply at random moments, equally often for each way to write.
func (b *bench) killParts() ([]*row, error) {
	r := rand.New(rand.NewPCG(b.seed, 1))
	var inputs [2]string
	for i := range inputs {
		inputs[i] = filepath.Join(b.dir, fmt.Sprintf("input%d.onnx", i))
		if err := b.heavy(inputs[i], i); err != nil {
			return nil, err
		}
	}
	var rows []*row
	for i, plan := range killPlans {
		n := b.kills/len(killPlans) + min(1, max(0, b.kills%len(killPlans)-i))
		row, err := b.kill(plan, inputs, n, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plan.what, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// heavy writes a bundled model with more weights; which selects one of two versions.
func (b *bench) heavy(path string, which int) error {
	m, err := onnx.Read(filepath.Join(b.models, "llama-ts-fp32.onnx"))
	if err != nil {
		return err
	}
	defer m.Close()
	raw := make([]byte, ballast)
	for i := 0; i < len(raw); i += 4 {
		binary.LittleEndian.PutUint32(raw[i:], uint32(i*(2*which+3)))
	}
	t, err := onnx.NewTensor("ballast", onnx.Float, []int64{ballast / 4}, raw)
	if err != nil {
		return err
	}
	m.Graph.AddInitializer(t)
	return onnx.Write(path, m)
}

func (b *bench) kill(plan killPart, inputs [2]string, n int, r *rand.Rand) (*row, error) {
	dir := filepath.Join(b.dir, "kill")
	out := filepath.Join(dir, "out.onnx")
	before, err := b.before(plan, inputs[0])
	if err != nil {
		return nil, err
	}
	old, err := contents(filepath.Join(before, "out.onnx"))
	if err != nil {
		return nil, err
	}
	flags := slices.Concat(plan.new, fast)
	args := append([]string{"apply", inputs[1], "-o", out}, flags...)
	if err := copyFolder(before, dir); err != nil {
		return nil, err
	}
	start := time.Now()
	writing, _, err := b.until(dir, args, sinceStart, -1)
	if err != nil {
		return nil, err
	}
	total := time.Since(start)
	fresh, err := contents(out)
	if err != nil || fresh == old {
		return nil, fmt.Errorf("the new contents are %s, the old ones %s: %v", fresh, old, err)
	}
	want, err := snapshot(dir)
	if err != nil {
		return nil, err
	}
	clean, err := snapshot(before)
	if err != nil {
		return nil, err
	}
	row := &row{what: plan.what}
	olds, news, litter := 0, 0, 0
	for row.tried < n {
		if err := copyFolder(before, dir); err != nil {
			return nil, err
		}
		// A third of the kills are at any time, a third between the first byte written and the end, a third among the
		// renames.
		from, delay := r.IntN(3), time.Duration(0)
		switch from {
		case sinceStart:
			delay = time.Duration(r.Int64N(int64(total)))
		case sinceWriting:
			delay = time.Duration(r.Int64N(int64(writing+writing/4) + 1))
		case sinceRename:
			delay = time.Duration(r.Int64N(int64(8 * time.Millisecond)))
		}
		_, killed, err := b.until(dir, args, from, delay)
		if err != nil {
			return nil, err
		}
		if !killed {
			continue // it was done before
		}
		row.check(fmt.Sprintf("killed after %v", delay), func() error {
			left, err := snapshot(dir)
			if err != nil {
				return err
			}
			switch got, err := contents(out); {
			case err != nil:
				return fmt.Errorf("the files left there do not load: %w (%s)", err, names(left))
			case got == old:
				olds++
			case got == fresh:
				news++
			default:
				return fmt.Errorf("neither the old model nor the new one is there (%s)", names(left))
			}
			if list := names(left); list != names(want) && list != names(clean) {
				litter++
			}
			if err := b.applies(0, inputs[1], out, flags...); err != nil {
				return fmt.Errorf("after a kill %w", err)
			}
			after, err := snapshot(dir)
			if err == nil && !maps.Equal(after, want) {
				err = fmt.Errorf("the apply after a kill leaves %s, one without leaves %s", names(after), names(want))
			}
			return err
		})
	}
	row.note = fmt.Sprintf("old files %d times, new ones %d times; temporary files left %d times, the next apply "+
		"removed them", olds, news, litter)
	return row, nil
}

// A delay counts from the start of the run, from the first file in the folder, or from a new OUT or OUT.data.
const (
	sinceStart = iota
	sinceWriting
	sinceRename
)

// until runs apply and kills it after a delay, or never for a negative delay. It returns the time from the first file
// to the end.
func (b *bench) until(dir string, args []string, from int, delay time.Duration) (writing time.Duration, killed bool,
	err error) {
	first := names0(dir)
	c := exec.Command(b.tool, args...)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		return 0, false, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	start := time.Now()
	var began, renamed time.Time
	outputs := identities(dir)
	for {
		if began.IsZero() && names0(dir) != first {
			began = time.Now()
		}
		if from == sinceRename && renamed.IsZero() && identities(dir) != outputs {
			renamed = time.Now()
		}
		since := [...]time.Time{start, began, renamed}[from]
		due := delay >= 0 && !since.IsZero() && time.Since(since) >= delay
		if due {
			c.Process.Kill()
		}
		select {
		case err := <-ended:
			if due && c.ProcessState.ExitCode() == -1 {
				return 0, true, nil
			}
			if err != nil {
				return 0, false, fmt.Errorf("apply: %w: %s", err, said.String())
			}
			return time.Since(began), false, nil
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// identities identifies OUT and OUT.data, to detect that they are replaced.
func identities(dir string) string {
	id := ""
	for _, name := range []string{"out.onnx", "out.onnx.data"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			id += fmt.Sprintf("%s %v %v;", name, info.Sys().(*syscall.Stat_t).Ino, info.ModTime())
		}
	}
	return id
}

// names0 lists a folder cheaply.
func names0(dir string) string {
	entries, _ := os.ReadDir(dir)
	return fmt.Sprint(entries)
}
