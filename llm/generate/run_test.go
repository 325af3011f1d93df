package generate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mojo-patch/mojo-patch/llm/generate"
)

// TestStops ends sequences by stop token, length and context, each sequence separately.
func TestStops(t *testing.T) {
	want := recordings(t)["llama-kv-dynamo-fp32"]
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	stop := want.Greedy[0][3]
	all := tokens(t, g, generate.Options{MaxTokens: 8, MaxContext: 12, StopTokens: []int64{stop}}, want.Prompts...)
	for i, s := range all {
		n := slices.Index(want.Greedy[i], stop) + 1
		reason := generate.StopToken
		if n == 0 || n > 8 {
			n, reason = 8, generate.StopLength
		}
		if room := 12 - len(want.Prompts[i]); room < n || room == n && reason == generate.StopLength && room < 8 {
			n, reason = room, generate.StopContext
		}
		if s.Stop != reason || !slices.Equal(s.IDs, want.Greedy[i][:n]) {
			t.Errorf("prompt %d: %v (%s), want %v (%s)", i, s.IDs, s.Stop, want.Greedy[i][:n], reason)
		}
	}
	if all[0].Stop != generate.StopToken || all[1].Stop != generate.StopContext {
		t.Errorf("the reasons are %s and %s", all[0].Stop, all[1].Stop)
	}
}

// letters is a tokenizer that writes each id as a word.
type letters struct{}

func (letters) Add(id int64) string { return fmt.Sprintf("w%d ", id) }
func (letters) Flush() string       { return "." }

func TestStopText(t *testing.T) {
	want := recordings(t)["llama-kv-dynamo-fp32"]
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	ids := want.Greedy[0]
	o := generate.Options{MaxTokens: 8, NewStream: func() generate.TextStream { return letters{} }}
	if s := tokens(t, g, o, want.Prompts[0])[0]; s.Text != fmt.Sprintf("w%d w%d w%d w%d w%d w%d w%d w%d .",
		anys(ids[:8])...) {
		t.Errorf("text %q of %v", s.Text, s.IDs)
	}
	o.StopTexts = []string{"never", fmt.Sprintf("%d w%d", ids[2], ids[3])} // spans two tokens
	r, err := g.Start(o, want.Prompts[0])
	must(t, err)
	var text string
	for token, err := range r.Tokens(t.Context()) {
		must(t, err)
		text += token.Text
	}
	s := r.Sequences()[0]
	if s.Stop != generate.StopText || s.Text != fmt.Sprintf("w%d w%d w", ids[0], ids[1]) || text != s.Text ||
		len(s.IDs) != 4 {
		t.Errorf("text %q, stream %q, %s after %v", s.Text, text, s.Stop, s.IDs)
	}
}

func anys(ids []int64) []any {
	var list []any
	for _, id := range ids {
		list = append(list, id)
	}
	return list
}

func TestCancel(t *testing.T) {
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := g.Start(generate.Options{}, []int64{1, 2})
	must(t, err)
	n := 0
	var last error
	for _, err := range r.Tokens(ctx) {
		if last = err; err != nil {
			break
		}
		if n++; n == 3 {
			cancel()
		}
	}
	if s := r.Sequences()[0]; !errors.Is(last, context.Canceled) || len(s.IDs) != 3 || s.Stop != "" {
		t.Errorf("after %d tokens (%q): %v", len(s.IDs), s.Stop, last)
	}
	for _, err := range r.Tokens(t.Context()) {
		if err == nil {
			t.Error("a run that was ended goes on")
		}
	}
	for token, err := range g.Generate(t.Context(), []int64{1, 2}, generate.Options{}) { // the reader stops early
		must(t, err)
		_ = token
		break
	}
}

// TestAtOnce generates with one model from several goroutines, with prompts of different lengths.
func TestAtOnce(t *testing.T) {
	want := recordings(t)["llama-kv-dynamo-fp32"]
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			for i, s := range tokens(t, g, generate.Options{MaxTokens: 6}, want.Prompts...) {
				if !slices.Equal(s.IDs, want.Greedy[i][:6]) {
					t.Errorf("prompt %d: %v", i, s.IDs)
				}
			}
		})
	}
	wait.Wait()
}

// TestSampled expects the same tokens for the same seed, in a batch and separately.
func TestSampled(t *testing.T) {
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	o := generate.Options{MaxTokens: 10, Sampling: generate.Sampling{Temperature: 1.5, TopK: 40, Seed: 3}}
	a, b := []int64{5, 6, 7}, []int64{8, 9}
	both := tokens(t, g, o, a, b)
	if alone := tokens(t, g, o, b)[0]; !slices.Equal(alone.IDs, both[1].IDs) {
		t.Errorf("alone %v, together %v", alone.IDs, both[1].IDs)
	}
	o.Sampling.Seed = 4
	if other := tokens(t, g, o, a)[0]; slices.Equal(other.IDs, both[0].IDs) {
		t.Errorf("another seed gives the same tokens %v", other.IDs)
	}
}

func TestPromptErrors(t *testing.T) {
	g := open(t, modelPath("llama-kv-dynamo-fp32"))
	for want, prompts := range map[string][][]int64{
		"no prompt is given": nil,
		"no tokens":          {{1}, {}},
		"id 160, but the model's ids are 0 to 159": {{1, 160}},
		"id -1":                            {{-1}},
		"has 4 tokens and the model has 4": {{1, 2, 3, 4}},
	} {
		_, err := g.Start(generate.Options{MaxContext: 4}, prompts...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", prompts, err, want)
		}
	}
	if _, err := g.Start(generate.Options{StopTexts: []string{"x"}}, []int64{1}); err == nil {
		t.Error("stop texts without a tokenizer pass")
	}
	if _, err := g.Start(generate.Options{Sampling: generate.Sampling{TopP: 2}}, []int64{1}); err == nil {
		t.Error("top-p 2 passes")
	}
}
