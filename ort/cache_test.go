//go:build cgo

package ort_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/orttest"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/staticcache"
)

// room is the number of tokens of the buffers in these tests.
const room = 8

// static opens a model whose caches are buffers of this length.
func static(t *testing.T, length int64, options ...ort.Option) *ort.Session {
	t.Helper()
	orttest.Library(t)
	m, err := onnx.Read("../models/llama-kv-dynamo-fp32.onnx")
	must(t, err)
	defer m.Close()
	_, err = rewrite.Apply(m, rewrite.Request{AssumeAvailable: true, StaticCache: &staticcache.Options{Length: length}})
	must(t, err)
	path := filepath.Join(t.TempDir(), "static.onnx")
	must(t, onnx.Write(path, m))
	return open(t, path, append(options, orttest.Provider())...)
}

// decoder is a model whose caches are buffers, each bound to its past and its present.
type decoder struct {
	t       *testing.T
	session *ort.Session
	binding *ort.Binding
	buffers map[string]*ort.Value
}

func newDecoder(t *testing.T, options ...ort.Option) *decoder {
	t.Helper()
	s := static(t, room, options...)
	b, err := s.Bind()
	must(t, err)
	must(t, b.Output("logits"))
	d := &decoder{t, s, b, map[string]*ort.Value{}}
	for _, v := range s.Inputs() {
		if !strings.HasPrefix(v.Name, "past") {
			continue
		}
		x, err := s.Allocate(v.Name, []int64{2, 2, room, 16})
		must(t, err)
		must(t, x.Write(onnx.NewFloat32s(v.Name, x.Dims, slices.Repeat([]float32{9}, 2*2*room*16))))
		must(t, b.InputValue(v.Name, x), b.OutputValue(strings.Replace(v.Name, "past", "present", 1), x))
		d.buffers[v.Name] = x
	}
	return d
}

// inputs returns the inputs for tokens of two sequences after past ones.
func (d *decoder) inputs(past int, rows [2][]int64) []*onnx.Tensor {
	n := len(rows[0])
	ids := onnx.NewInt64s("input_ids", slices.Concat(rows[0], rows[1]))
	mask := onnx.NewInt64s("attention_mask", slices.Repeat([]int64{1}, 2*(past+n)))
	ids.Dims, mask.Dims = []int64{2, int64(n)}, []int64{2, int64(past + n)}
	return []*onnx.Tensor{ids, mask}
}

// step runs the tokens in place and returns the logits.
func (d *decoder) step(past int, rows [2][]int64) (*onnx.Tensor, error) {
	for _, x := range d.inputs(past, rows) {
		must(d.t, d.binding.Input(x))
	}
	must(d.t, d.binding.Output("logits")) // of another shape than before
	if err := d.binding.Run(d.t.Context()); err != nil {
		return nil, err
	}
	return outputs(d.t, d.binding)[0], nil
}

// tensors copies the buffers.
func (d *decoder) tensors() []*onnx.Tensor {
	var list []*onnx.Tensor
	for name, v := range d.buffers {
		x, err := v.Tensor()
		must(d.t, err)
		list = append(list, renamed(d.t, x, name))
	}
	return list
}

// near compares tensors up to rounding.
func near(t *testing.T, got, want *onnx.Tensor) {
	t.Helper()
	stats, err := golden.Compare(got, want, golden.Tolerance{Abs: 1e-5, Rel: 1e-5})
	if err != nil || !stats.Passed {
		t.Errorf("%v %s", err, stats.Summary())
	}
}

// TestCacheInPlace decodes with one value bound to past and present, goes back and decodes other tokens, and exchanges
// the sequences as in beam search. It compares with unbound values and with growing caches. A full cache must be an
// error, and nothing may be written.
func TestCacheInPlace(t *testing.T) {
	kernels := orttest.Kernels(t)
	for name, options := range map[string][]ort.Option{"kernels": {ort.WithKernelLibrary(kernels)},
		"definitions": nil} {
		t.Run(name, func(t *testing.T) {
			d := newDecoder(t, options...)
			run := func(past int, rows [2][]int64) *onnx.Tensor {
				t.Helper()
				x, err := d.step(past, rows)
				must(t, err)
				return x
			}
			run(0, [2][]int64{{5, 17, 42}, {9, 3, 77}})
			before := d.tensors()
			next := [2][]int64{{7}, {8}}
			want := run(3, next)
			unbound, err := d.session.Run(append(before, d.inputs(3, next)...))
			must(t, err)
			near(t, unbound[0], want)
			near(t, appended(t, [2][]int64{{5, 17, 42}, {9, 3, 77}}, next), want)
			run(4, [2][]int64{{1, 2}, {3, 4}})
			near(t, run(3, next), want) // back again
			run(4, [2][]int64{{11}, {12}})
			for name, v := range d.buffers {
				x, err := v.Tensor()
				must(t, err)
				b, err := x.Bytes()
				must(t, err)
				half := len(b) / 2
				x, err = onnx.NewTensor(name, x.DataType, x.Dims, slices.Concat(b[half:], b[:half]))
				must(t, err, v.Write(x))
			}
			logits, err := run(3, [2][]int64{{8}, {7}}).Bytes()
			must(t, err)
			half := len(logits) / 2
			exchanged, err := onnx.NewTensor("logits", want.DataType, want.Dims,
				slices.Concat(logits[half:], logits[:half]))
			must(t, err)
			near(t, exchanged, want)
		})
	}
	d := newDecoder(t, ort.WithKernelLibrary(kernels))
	_, err := d.step(0, [2][]int64{{1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 4, 5, 6, 7}})
	must(t, err)
	before := d.tensors()
	_, err = d.step(7, [2][]int64{{1, 2}, {3, 4}})
	if err == nil || !strings.Contains(err.Error(), "past_length of sequence 0 is 7") {
		t.Errorf("a cache that is full: %v", err)
	}
	for _, x := range before {
		now, err := d.buffers[x.Name].Tensor()
		must(t, err)
		equal(t, now, x)
	}
}

// appended returns the logits after the last tokens of a model with growing caches.
func appended(t *testing.T, steps ...[2][]int64) *onnx.Tensor {
	t.Helper()
	s := open(t, "../models/llama-kv-dynamo-fp32.onnx", orttest.Provider())
	var out []*onnx.Tensor
	past := 0
	for _, rows := range steps {
		inputs := (&decoder{t: t}).inputs(past, rows)
		for _, v := range s.Inputs()[2:] {
			x := onnx.NewFloat32s(v.Name, []int64{2, 2, 0, 16}, nil)
			for _, present := range out {
				if present.Name == strings.Replace(v.Name, "past", "present", 1) {
					x = renamed(t, present, v.Name)
				}
			}
			inputs = append(inputs, x)
		}
		var err error
		out, err = s.Run(inputs)
		must(t, err)
		past += len(rows[0])
	}
	return out[0]
}

// TestNoRoom passes buffers without a row, as callers with growing caches start with.
func TestNoRoom(t *testing.T) {
	s := static(t, 0, ort.WithKernelLibrary(orttest.Kernels(t)))
	inputs := (&decoder{t: t}).inputs(0, [2][]int64{{1, 2}, {3, 4}})
	for _, v := range s.Inputs() {
		if strings.HasPrefix(v.Name, "past") {
			inputs = append(inputs, onnx.NewFloat32s(v.Name, []int64{2, 2, 0, 16}, nil))
		}
	}
	_, err := s.Run(inputs)
	want := "no more keys of k than past_key has room for: N <= P if past_length, here 2 and 0, with "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

// TestEmptyPastOfANode has a node compute the past, which has no memory if it has no tokens.
func TestEmptyPastOfANode(t *testing.T) {
	kernels := orttest.Kernels(t)
	orttest.Library(t)
	m, err := onnx.Read("../models/llama-kv-dynamo-fp32.onnx")
	must(t, err)
	defer m.Close()
	_, err = rewrite.Apply(m, rewrite.Request{AssumeAvailable: true})
	must(t, err)
	past, made := m.Graph.Value("past_k0"), m.Graph.NewValue("made")
	for _, use := range slices.Clone(past.Uses()) {
		use.Node.SetInput(use.Index, made)
	}
	m.Graph.AddNode("Concat", []*onnx.Value{past}, []*onnx.Value{made}, onnx.IntAttr("axis", 2))
	must(t, m.Graph.Sort())
	path := filepath.Join(t.TempDir(), "made.onnx")
	must(t, onnx.Write(path, m))
	s := open(t, path, orttest.Provider(), ort.WithKernelLibrary(kernels))
	rows := [2][]int64{{5, 17, 42}, {9, 3, 77}}
	inputs := (&decoder{t: t}).inputs(0, rows)
	for _, v := range s.Inputs()[2:] {
		inputs = append(inputs, onnx.NewFloat32s(v.Name, []int64{2, 2, 0, 16}, nil))
	}
	out, err := s.Run(inputs)
	must(t, err)
	near(t, out[0], appended(t, rows))
}

// TestWrongCaches passes buffers and masks that do not fit. The errors must name the input, in a run and with bound
// values.
func TestWrongCaches(t *testing.T) {
	kernels := orttest.Kernels(t)
	inputs := (&decoder{t: t}).inputs(2, [2][]int64{{1, 2}, {3, 4}})
	cache := func(name string, dims ...int64) *onnx.Tensor {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		return onnx.NewFloat32s(name, dims, make([]float32, n))
	}
	half, err := golden.Convert(cache("past_v1", 2, 2, room, 16), onnx.Float16)
	must(t, err)
	long := onnx.NewInt64s("attention_mask", slices.Repeat([]int64{1}, 2*(room+3)))
	long.Dims = []int64{2, room + 3}
	for what, test := range map[string]struct {
		length int64 // that the model was patched for
		wrong  *onnx.Tensor
		want   string
	}{
		"another M": {room, cache("past_v1", 2, 2, room-1, 16),
			`input "past_v1" is float32[2 2 7 16], but the model needs "past_v1": float32[s10,2,8,16]`},
		"more heads": {0, cache("past_v1", 2, 3, room, 16),
			`input "past_v1" is float32[2 3 8 16], but the model needs`},
		"another width": {room, cache("past_v1", 2, 2, room, 8),
			`input "past_v1" is float32[2 2 8 8], but the model needs`},
		"another type": {0, half, `input "past_v1" is float16[2 2 8 16], but the model needs`},
		"a past that appends": {0, cache("past_v1", 2, 2, 2, 16),
			"past_value has shape [2,2,2,16]; it must be [2,2,8,16]"},
		"buffers that differ": {0, cache("past_k1", 2, 2, room+1, 16),
			"past_value has shape [2,2,8,16]; it must be [2,2,9,16]"},
		"a mask that is great": {0, long,
			"past_length of sequence 0 is 9; with past_value of shape [2,2,8,16] and 2 tokens more it must be from 0 " +
				"to 6"},
	} {
		t.Run(what, func(t *testing.T) {
			s := static(t, test.length, ort.WithKernelLibrary(kernels))
			b, err := s.Bind()
			must(t, err)
			defer b.Close()
			var given []*onnx.Tensor
			for _, v := range s.Inputs() {
				x := cache(v.Name, 2, 2, room, 16)
				for _, y := range append(inputs, test.wrong) {
					if y.Name == v.Name {
						x = y
					}
				}
				given = append(given, x)
				err = errors.Join(err, b.Input(x))
			}
			for _, v := range s.Outputs() {
				must(t, b.Output(v.Name))
			}
			if err == nil {
				err = b.Run(t.Context())
			}
			_, e := s.Run(given)
			for _, err := range []error{err, e} {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
			}
		})
	}
}
