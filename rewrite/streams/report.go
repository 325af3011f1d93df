package streams

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// A SafeReport describes the changes that keep a model from overflowing in float16.
type SafeReport struct {
	// Inputs is the number of inputs on which magnitudes were measured. They are random unless Recorded is set.
	Inputs   int     `json:"inputs"`
	Recorded bool    `json:"recorded"`
	Headroom float64 `json:"headroom"`
	// Greatest is the largest magnitude among the values that would be float16, and GreatestOf names the value.
	Greatest   golden.Number `json:"greatest"`
	GreatestOf string        `json:"greatest_of,omitempty"`
	// Overflowing counts the float16 values that exceed its range or the headroom.
	Overflowing int      `json:"overflowing"`
	Scaled      []Scaled `json:"scaled"`
	// Bridges are the products added between a stream and values that do not scale: inputs and outputs of the model,
	// and ops without a law.
	Bridges []Bridge `json:"bridges,omitempty"`
	// Constants and Epsilons count the constants and epsilons multiplied by powers of two.
	Constants int `json:"constants"`
	Epsilons  int `json:"epsilons"`
	// Lost counts the elements of scaled constants that become 0 in float16 only because of the scale.
	Lost int64 `json:"lost"`
	// Stays lists the values that are too large and cannot be scaled. Their producers and readers are in float32.
	Stays   []Stay             `json:"stays"`
	Check   *prove.CheckReport `json:"check,omitempty"`
	Compare []Variant          `json:"compare,omitempty"`
}

// Scaled is a group of values, such as a residual stream, that were multiplied by a power of two.
type Scaled struct {
	Value    string        `json:"value"` // the first one
	Exponent int           `json:"exponent"`
	Values   int           `json:"values"`
	Greatest golden.Number `json:"greatest"` // before
	// GreatestOf is the value with the largest magnitude.
	GreatestOf string `json:"greatest_of"`
}

// A Bridge is a product of a value with a power of two that was added to the model.
type Bridge struct {
	Value    string `json:"value"`
	Node     string `json:"node"`
	Exponent int    `json:"exponent"`
}

// A Stay is a value that stays in float32.
type Stay struct {
	Value    string        `json:"value"`
	Node     string        `json:"node"`
	Op       string        `json:"op"`
	Greatest golden.Number `json:"greatest"`
	Reason   string        `json:"reason"`
}

// A Variant describes the difference between the outputs of the model in a type and in float32, in the built-in
// evaluator, which rounds each value to its type.
type Variant struct {
	Type string `json:"type"`
	Safe bool   `json:"safe,omitempty"`
	// NotFinite counts elements of outputs that are finite only in float32. FirstNaN is the first node that computes a
	// NaN.
	NotFinite int64  `json:"not_finite"`
	FirstNaN  string `json:"first_nan,omitempty"`
	// Error is the largest relative error of an output, root mean square; infinite if NotFinite is not 0.
	Error golden.Number `json:"error"`
	// Logits has the figures of all outputs with logits, if there are any.
	Logits *golden.LogitStats `json:"logits,omitempty"`
}

// Text returns the report as lines of text.
func (r *SafeReport) Text() string {
	var b strings.Builder
	source := english.Counted(r.Inputs, "random input")
	if r.Recorded {
		source = english.Counted(r.Inputs, "recorded input")
	}
	fmt.Fprintf(&b, "float16: greatest magnitude %.4g (%s) on %s; %s beyond 65504 divided by a headroom of %g\n",
		float64(r.Greatest), r.GreatestOf, source, english.Counted(r.Overflowing, "value"), r.Headroom)
	for _, s := range r.Scaled {
		fmt.Fprintf(&b, "scaled by 2^%d: %s from %q on, greatest magnitude before %.4g (%s)\n", s.Exponent,
			english.Counted(s.Values, "value"), s.Value, float64(s.Greatest), s.GreatestOf)
	}
	if len(r.Scaled) > 0 {
		fmt.Fprintf(&b, "scaled: %s and %s; %s added\n", english.Counted(r.Constants, "constant"),
			english.Counted(r.Epsilons, "epsilon attribute"), english.Counted(len(r.Bridges), "node"))
	}
	for _, x := range r.Bridges {
		fmt.Fprintf(&b, "added: node %q multiplies %q by 2^%d between the stream and nodes that do not scale\n", x.Node,
			x.Value, x.Exponent)
	}
	if r.Lost > 0 {
		fmt.Fprintf(&b, "scaled: %d elements of constants become 0 in float16\n", r.Lost)
	}
	for _, s := range r.Stays {
		fmt.Fprintf(&b, "stays in float32: %q of node %q (%s), magnitude %.4g: %s\n", s.Value, s.Node, s.Op,
			float64(s.Greatest), s.Reason)
	}
	for _, v := range r.Compare {
		b.WriteString(v.text())
	}
	return b.String()
}

func (v *Variant) text() string {
	name := v.Type
	if v.Safe {
		name += " --safe"
	}
	text := fmt.Sprintf("against float32: %-14s error %.3g", name, float64(v.Error))
	if v.Logits != nil {
		text += fmt.Sprintf(", mean KL %.3g, top-1 %.4g%%", float64(v.Logits.MeanKL), 100*v.Logits.Top1)
	}
	if v.NotFinite > 0 {
		text += fmt.Sprintf(", %d elements not finite", v.NotFinite)
	}
	if v.FirstNaN != "" {
		text += fmt.Sprintf(", NaN from node %q on", v.FirstNaN)
	}
	return text + "\n"
}
