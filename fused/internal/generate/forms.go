package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// forms is fused/kernels/tests/forms.cc: the ways to use each op, for the tests in the stand-in for onnxruntime.
func forms() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(notice + `#include "tests/forms.h"

#include <math.h>

namespace mojo_test {

const std::vector<Form>& Forms() {
  static const std::vector<Form> forms = {
`)
	for _, o := range fused.Ops() {
		for _, f := range formsOf(o) {
			var ints, floats, words []string
			for _, a := range f.set {
				switch a.Type {
				case onnx.AttrInt:
					ints = append(ints, fmt.Sprintf("{%q, %d}", a.Name, a.Int))
				case onnx.AttrFloat:
					floats = append(floats, fmt.Sprintf("{%q, %s}", a.Name, literal(a.Float)))
				case onnx.AttrString:
					words = append(words, fmt.Sprintf("{%q, %q}", a.Name, a.String))
				}
			}
			fmt.Fprintf(&b, "    {mojo::k%s, {{%s}, {%s}, {%s}, {}}, %s, %s, %s},\n", o.Name, strings.Join(ints, ", "),
				strings.Join(floats, ", "),
				strings.Join(words, ", "), shapes(f.Inputs), shapes(f.Outputs), braces(f.Types))
		}
	}
	b.WriteString("  };\n  return forms;\n}\n\n}  // namespace mojo_test\n")
	return b.Bytes(), nil
}

// literal is a float in C++.
func literal(v float32) string {
	if math.IsInf(float64(v), 0) {
		return map[bool]string{true: "-INFINITY", false: "INFINITY"}[v < 0]
	}
	text := strconv.FormatFloat(float64(v), 'g', -1, 32)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text + "f"
}

// shapes are vectors of dimensions in C++; an input that is left out has the shape kLeftOut.
func shapes(list [][]int64) string {
	var words []string
	for _, shape := range list {
		if shape == nil {
			words = append(words, "kLeftOut")
			continue
		}
		words = append(words, braces(shape))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

func braces[T int | int64](list []T) string {
	var words []string
	for _, n := range list {
		words = append(words, fmt.Sprint(n))
	}
	return "{" + strings.Join(words, ", ") + "}"
}
