package moe_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

type value = *onnx.Value

// TestLayersOfOneForm has a second layer with other weights. Layers of one form are read only once.
func TestLayersOfOneForm(t *testing.T) {
	for _, form := range mixtureForms {
		t.Run(form.name, func(t *testing.T) {
			b := newMixture(7, 2)
			b.route(b.Op("Add", b.rows, form.build(b)))
			list, missed := b.matches(b.Op("Add", b.rows, form.build(b)))
			if len(list) != 2 {
				t.Fatalf("%d matches, missed: %v", len(list), missed)
			}
			if strings.HasPrefix(form.name, "those chosen") {
				return // runs only for some inputs
			}
			for _, m := range list {
				b.agrees(t, m)
			}
		})
	}
}

// TestFormsAreReadOnce checks that four layers take little more work than one, unless the numbers of a weight may
// matter.
func TestFormsAreReadOnce(t *testing.T) {
	steps := func(layers int, build func(b *mixture) value) int {
		b := newMixture(7, 2)
		for range layers {
			b.route(b.Op("Add", b.rows, build(b)))
		}
		b.Model.Graph.AddOutput(b.rows)
		only := patterns.Builtin().Select(func(p *patterns.Pattern) bool { return p.Name == "MoE" })
		facts := infer.Analyze(b.Model)
		if list, _ := only.Find(b.Model.Graph, facts); len(list) != layers {
			t.Fatalf("%d matches instead of %d", len(list), layers)
		}
		return match.StepsTaken(facts)
	}
	if one, four := steps(1, (*mixture).equalAndMul), steps(4, (*mixture).equalAndMul); four > 2*one {
		t.Errorf("four layers take %d steps, one %d", four, one)
	}
	biased := func(b *mixture) value {
		b.style.bias = true
		return b.equalAndMul()
	}
	if one, four := steps(1, biased), steps(4, biased); four < 3*one {
		t.Errorf("four layers with biases of their own take %d steps, one %d", four, one)
	}
}

// TestMissesOfOneForm checks that the reason for the second layer names a node of the second layer.
func TestMissesOfOneForm(t *testing.T) {
	b := newMixture(4, 2)
	b.style.activation = "sine"
	b.route(b.Op("Add", b.rows, b.equalAndMul()))
	second := len(b.Model.Graph.Nodes)
	_, missed := b.matches(b.equalAndMul())
	if len(missed) != 2 || missed[0].Reason.Code != missed[1].Reason.Code {
		t.Fatalf("%d misses: %v", len(missed), missed)
	}
	names := regexp.MustCompile(`"[^"]*"`)
	texts := []string{missed[0].Reason.Error(), missed[1].Reason.Error()}
	if names.ReplaceAllString(texts[0], "") != names.ReplaceAllString(texts[1], "") {
		t.Fatal(texts)
	}
	named := names.FindString(texts[1])
	if !slices.ContainsFunc(b.Model.Graph.Nodes[second:], func(n *onnx.Node) bool {
		return strconv.Quote(n.Label()) == named
	}) {
		t.Errorf("%s is no node of the second layer: %q", named, texts)
	}
}
