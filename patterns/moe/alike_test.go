package moe_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// TestLayersOfOneForm has a second layer with weights of its own, which is not read again where the form of the first
// tells how.
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
				return // runs for some inputs only
			}
			for _, m := range list {
				b.agrees(t, m)
			}
		})
	}
}

// TestMissesOfOneForm has the second layer say which of its own nodes is not what an expert has.
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
