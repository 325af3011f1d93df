package fused

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/reason"
)

// Domain is the domain of the fused ops.
const Domain = "mojo"

// Version is the version of the domain that a patched model imports.
const Version = 1

// MinOpset is the oldest opset of the standard that bodies are written for.
const MinOpset = 13

// Param declares one input or output of an op.
type Param struct {
	Name string
	Type string // type variable, such as T, or a type
	Dims Shape
	Role Role
	Doc  string
	// Optional says that a node may leave it out; only those after it may be optional too, and all of them are.
	Optional bool
}

// AttributeSpec declares one attribute of an op; every attribute is written on every node.
type AttributeSpec struct {
	Name string
	Type onnx.AttributeType
	// Values lists the allowed strings; a number has Bounds instead. Rules of the op may limit both further.
	Values []string
	Bounds Bounds
	// Grid lists the values, of type int, float64 or string, that kernels are tried with; nil stands for all of Values.
	Grid []any
	Doc  string
	// Field names the attribute in the C++ struct of the op's attributes, Name if it is empty. A string of two values
	// with a Field is a bool there: whether it is the second one.
	Field string
	// Part is the member of that struct that has the attribute; nil for the struct itself.
	Part *Part
}

// Part is a member of the C++ struct of an op's attributes: the struct of another op. If the op has all attributes of
// the other one, the Go struct embeds that of the other one too.
type Part struct{ Op, Field string }

// within declares attributes of an op as a part of another one.
func within(field, op string, attributes []AttributeSpec) []AttributeSpec {
	list := slices.Clone(attributes)
	for i := range list {
		list[i].Part = &Part{op, field}
	}
	return list
}

// Op declares one fused op. The documentation, the tables of the C++ kernels, what the Python tests know of an op, the
// inference of shapes and the registry of kernels are all made of it.
type Op struct {
	Name    string
	Summary string
	Formula []string // in the notation of docs/ops.md, one line each
	// Source says where the formula comes from.
	Source string
	// Family is the group of kernels that it goes by, Devices what there are kernels for.
	Family  *Family
	Devices []Device
	// Partial lists what only some devices of a kind have kernels for.
	Partial []Partial

	Inputs     []Param
	Outputs    []Param
	Attributes []AttributeSpec
	// Rules relate attributes to each other.
	Rules []Rule
	// Types lists the combinations of types that the kernels have, Variables the type variables that follow from
	// others.
	Types     []Combination
	Variables []Variable
	// Let says what symbols of shapes are that follow from others, Where what else holds between sizes.
	Let   map[string]Shape
	Where []Relation
	// Parts lists the ops that do the same one after the other, nil for an op of one block.
	Parts []*Op

	// check errs unless the kernels take the site; what the fields above say holds already. nil if nothing is left.
	check func(Site) error
	// examples lists shapes of inputs that kernels are tried on with these attributes: none for attributes that are not
	// tried.
	examples func(Site) [][][]int64
	// forms is Forms, where the products of the attributes' grids are too many; examples is nil then.
	forms    func() []Form
	overload func(Site) string
	// open is Open; nil where nothing is.
	open   func(Site) float64
	define func(*body, Site) []*onnx.Value
}

// Partial is a value of an attribute that some devices of a kind have kernels for, and others refuse. Nothing is tried
// with it without a look at the device.
type Partial struct {
	Device    Device `json:"device"`
	Attribute string `json:"attribute"`
	Value     string `json:"value"`
}

// OnEvery reports whether all devices of a kind that run the op's kernels run them at the site.
func (o *Op) OnEvery(d Device, s Site) bool {
	return !slices.ContainsFunc(o.Partial, func(p Partial) bool {
		a := s.Attr(p.Attribute)
		return p.Device == d && a != nil && a.String == p.Value
	})
}

// Site is one place of use, as far as a definition depends on it.
type Site struct {
	// Attributes of the node, complete.
	Attributes []*onnx.Attribute
	// Types of the inputs: Undefined for one that is left out. Those at the end that are left out need no entry.
	Types []onnx.DataType
	// Dims holds the shapes of the inputs: nil where unknown or left out, -1 for a dimension that is unknown.
	Dims [][]int64
	// Opset is the version of the standard's domain that the model imports.
	Opset int64
}

// Supports reports whether the op's kernels take the types, shapes and attributes of the site. A site they do not take
// must not be rewritten: where a kernel library is registered, its op shadows the function body even for types that the
// kernel lacks, and the model would not load. Unknown dimensions are objected to only where the definition needs them.
// The error is a *reason.Reason.
func (o *Op) Supports(s Site) error {
	err := o.supports(s)
	if err == nil || reason.As(err) != nil {
		return err
	}
	return reason.New(reason.Signature, nil, "%w", err).With("op", o.Name)
}

func (o *Op) supports(s Site) error {
	if err := o.checkInputs(s); err != nil {
		return err
	}
	if err := o.checkAttributes(s.Attributes); err != nil {
		return err
	}
	same := o.SameShape()
	for _, i := range same[min(1, len(same)):] {
		a, b := s.dims(same[0]), s.dims(i)
		if a != nil && b != nil && !agree(a, b) {
			return fmt.Errorf("%s does not broadcast: %s is %v, %s is %v", o.Name, o.Inputs[same[0]].Name, a,
				o.Inputs[i].Name, b)
		}
	}
	if err := o.checkTypes(s); err != nil {
		return reason.New(reason.Types, nil, "%w", err).With("op", o.Name)
	}
	if err := o.checkShapes(s); err != nil || o.check == nil {
		return err
	}
	return o.check(s)
}

// Function builds the definition for the site: a model-local function whose opset import equals the site's. Sites with
// the same Overload and opset get equal functions.
func (o *Op) Function(s Site) (*onnx.Function, error) {
	if s.Opset < MinOpset {
		return nil, fmt.Errorf("mojo.%s needs opset %d or newer, the model imports %d: convert it first "+
			"(onnx.version_converter)", o.Name, MinOpset, s.Opset)
	}
	if err := o.Supports(s); err != nil {
		return nil, err
	}
	f := onnx.NewFunction(Domain, o.Name, o.Overload(s), s.Opset)
	f.DocString = o.Summary + "\n" + strings.Join(o.Formula, "\n")
	for _, a := range o.Attributes {
		f.Attributes = append(f.Attributes, a.Name)
	}
	b := &body{root: f.Body, g: f.Body, site: s}
	for _, p := range o.Inputs {
		b.in = append(b.in, f.Body.AddInput(p.Name, onnx.Type{}))
	}
	for i, v := range o.define(b, s) {
		b.output(o.Outputs[i].Name, v)
	}
	return f, nil
}

// Open is how far right results at a site may lie from each other, as a part of the greatest magnitude: more than 0 for
// an op that rounds what it has computed itself to integers, where a sum in another order gives the other one of two.
func (o *Op) Open(s Site) float64 {
	if o.open == nil {
		return 0
	}
	return o.open(s)
}

// OutputNames lists the names of the op's outputs.
func (o *Op) OutputNames() []string {
	names := make([]string, len(o.Outputs))
	for i, p := range o.Outputs {
		names[i] = p.Name
	}
	return names
}

// Overload names the variant of the definition that serves the site.
func (o *Op) Overload(s Site) string {
	name := o.overload(s)
	if s.Opset < castLikeOpset { // without CastLike a body is written for its types
		for i, t := range s.Types {
			if s.has(i) {
				name += "_" + t.String()
			}
		}
	}
	return name
}

// checkInputs errs unless the site has every input that cannot be left out, and no more than the op takes.
func (o *Op) checkInputs(s Site) error {
	if len(s.Types) > len(o.Inputs) {
		return fmt.Errorf("mojo.%s takes %d inputs, the site has %d", o.Name, len(o.Inputs), len(s.Types))
	}
	for i, p := range o.Inputs {
		if !p.Optional && !s.has(i) {
			return fmt.Errorf("mojo.%s: input %s is missing", o.Name, p.Name)
		}
	}
	return nil
}

// agree reports whether two shapes may be equal: -1 agrees with every dimension.
func agree(a, b []int64) bool {
	return slices.EqualFunc(a, b, func(x, y int64) bool { return x < 0 || y < 0 || x == y })
}

// Attr returns the attribute of a name, one without a value where there is none.
func (s Site) Attr(name string) *onnx.Attribute {
	for _, a := range s.Attributes {
		if a.Name == name {
			return a
		}
	}
	return &onnx.Attribute{}
}

func (s Site) has(i int) bool { return i < len(s.Types) && s.Types[i] != onnx.Undefined }

func (s Site) dims(i int) []int64 {
	if i < len(s.Dims) {
		return s.Dims[i]
	}
	return nil
}

func (s Site) lastDim(i int) int64 {
	d := s.dims(i)
	if len(d) == 0 {
		return -1
	}
	return d[len(d)-1]
}
