package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mojo-patch/mojo-patch/bench/internal/process"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// decoded is the result of a run: the seconds to open the model, to read the prompt, and to decode one token (the
// median of several), the generated tokens, and the logits after the prompt.
type decoded struct {
	Open, Prompt, Token float64
	Tokens              []int64
	Logits              []float64
}

const promptTokens, moreTokens = 8, 4

// decode opens a model and prints the results for a prompt and a few tokens.
func decode(path string) (err error) {
	start := time.Now()
	s, err := ort.Open(path, ort.WithKernels())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	d := decoded{Open: time.Since(start).Seconds()}
	for i := range int64(promptTokens) {
		d.Tokens = append(d.Tokens, 3+5*i)
	}
	for range moreTokens + 1 {
		start := time.Now()
		ids := onnx.NewInt64s("input_ids", d.Tokens)
		ids.Dims = []int64{1, int64(len(d.Tokens))}
		out, err := s.Run([]*onnx.Tensor{ids})
		if err != nil {
			return err
		}
		seconds := time.Since(start).Seconds()
		logits, err := last(out[0])
		if err != nil {
			return err
		}
		if d.Logits == nil {
			d.Logits, d.Prompt = logits, seconds
		}
		d.Token = seconds
		d.Tokens = append(d.Tokens, greatest(logits))
	}
	return json.NewEncoder(os.Stdout).Encode(d)
}

// last returns the logits of the last position, which must be finite and not all equal.
func last(t *onnx.Tensor) ([]float64, error) {
	b, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	n := int(t.Dims[len(t.Dims)-1])
	list, low, high := make([]float64, n), math.Inf(1), math.Inf(-1)
	for i := range list {
		list[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[len(b)-4*n+4*i:])))
		low, high = min(low, list[i]), max(high, list[i])
	}
	if !(high > low) || math.IsInf(high-low, 0) {
		return nil, fmt.Errorf("the logits are from %g to %g", low, high)
	}
	return list, nil
}

func greatest(list []float64) int64 {
	best := 0
	for i, x := range list {
		if x > list[best] {
			best = i
		}
	}
	return int64(best)
}

// decode does this in another process.
func (b *bench) decode(model string) (*decoded, process.Usage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, process.Usage{}, err
	}
	var stdout strings.Builder
	c := exec.Command(self, "-decode", model)
	c.Stdout = &stdout
	u, err := process.Run(c)
	if err != nil {
		return nil, u, err
	}
	d := &decoded{}
	return d, u, json.Unmarshal([]byte(stdout.String()), d)
}

// near returns an error unless the logits equal another run's up to the rounding of 16-bit activations.
func (d *decoded) near(want *decoded) error {
	worst, scale := 0.0, 0.0
	for i, x := range want.Logits {
		worst, scale = max(worst, math.Abs(d.Logits[i]-x)), max(scale, math.Abs(x))
	}
	if !(worst <= 1e-3*scale) {
		return fmt.Errorf("the logits differ from those in float32 by %g of the greatest", worst/scale)
	}
	return nil
}
