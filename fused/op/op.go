// Package op declares fused ops and builds their definitions.
package op

import (
	"errors"
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

// MinOpset is the oldest opset of the standard that bodies support.
const MinOpset = 13

// FormOpset is the opset for which forms of kernels are listed: the first that has the types of all inputs and outputs.
const FormOpset = Float8Opset

// Param declares one input or output of an op.
type Param struct {
	Name string
	Type string // type variable, such as T, or a type
	Dims Shape
	Role Role
	Doc  string
	// Optional reports that a node may leave the parameter out. All parameters after an optional one are optional.
	Optional bool
}

// AttributeSpec declares one attribute of an op. Every node has every attribute.
type AttributeSpec struct {
	Name string
	Type onnx.AttributeType
	// Values lists the allowed strings, or is empty for any string; numbers have Bounds instead. The rules of the op
	// may limit both further.
	Values []string
	Bounds Bounds
	// Grid lists the values, of type int, float64 or string, that kernels are tested with; nil means all of Values.
	Grid []any
	Doc  string
	// Field is the name of the attribute in the C++ struct of the op's attributes; "" means Name. A string attribute
	// with a Field has two values and is a bool there: true for the second one.
	Field string
	// Part is the member of that struct that contains the attribute; nil for the struct itself.
	Part *Part
}

// Part is a member of the C++ struct of an op's attributes: the struct of another op. If the op has all attributes of
// the other op, its Go struct also embeds the struct of the other op.
type Part struct{ Op, Field string }

// Within declares attributes of an op as a part of another op.
func Within(field, op string, attributes []AttributeSpec) []AttributeSpec {
	list := slices.Clone(attributes)
	for i := range list {
		list[i].Part = &Part{op, field}
	}
	return list
}

// Op declares one fused op. The documentation, the tables of the C++ kernels, the data of the Python tests, shape
// inference and the registry of kernels are all derived from it.
type Op struct {
	Name    string
	Summary string
	Formula []string // in the notation of docs/ops.md, one line each
	// Source cites the origin of the formula.
	Source string
	// Family is the group of ops that it belongs to. Devices lists the devices with kernels.
	Family  *Family
	Devices []Device
	// Partial lists the values that only some devices of a kind have kernels for.
	Partial []Partial

	Inputs     []Param
	Outputs    []Param
	Attributes []AttributeSpec
	// Rules relate attributes to each other.
	Rules []Rule
	// Types lists the combinations of types that the kernels support, Variables the type variables that follow from
	// others.
	Types     []Combination
	Variables []Variable
	// Let defines the symbols of shapes that follow from others. Where lists further conditions on sizes.
	Let   map[string]Shape
	Where []Relation
	// Parts lists the ops that compute the same in sequence; nil for an op that does not consist of others.
	Parts []*Op

	// Check errs unless the kernels take a site that passed the checks of the fields above. It may be nil.
	Check func(Site) error
	// Shapes lists the shapes of inputs that kernels are tested on with the attributes of a site. It returns nil for
	// attributes that are not tested.
	Shapes func(Site) [][][]int64
	// AllForms, if not nil, replaces Shapes for ops whose grids have too many combinations.
	AllForms func() []Form
	// Wide returns the forms at the sizes of real models.
	Wide func(FormMaker) []Form
	// Variant names the variant of the definition for a site; Overload adds types.
	Variant func(Site) string
	// Differ implements Open; nil means 0.
	Differ func(Site) float64
	// Unrounded builds the outputs of Steps. It is nil for an op that does not round to 8 bits.
	Unrounded func(*Body, Site) (v, scale *onnx.Value)
	// NoBody reports whether nodes at a site have no definition, because one process cannot compute them. It may be
	// nil.
	NoBody func(Site) bool
	// Body builds the outputs of the definition.
	Body func(*Body, Site) []*onnx.Value
}

// Partial is a value of an attribute that some devices of a kind have kernels for and others refuse. Tests that use it
// must check the device first.
type Partial struct {
	Device    Device `json:"device"`
	Attribute string `json:"attribute"`
	Value     string `json:"value"`
}

// OnEvery reports whether every device of a kind with kernels of the op runs them at the site.
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
	// Types of the inputs: Undefined for an input that is left out. Trailing inputs that are left out need no entry.
	Types []onnx.DataType
	// Dims holds the shapes of the inputs: nil if unknown or left out, -1 for an unknown dimension.
	Dims [][]int64
	// Opset is the version of the standard's domain that the model imports.
	Opset int64
}

// ErrNoBody is the error of Function for a site whose nodes have no definition. Use errors.Is.
var ErrNoBody = errors.New("has no body with more than one rank: only the kernels can run it")

// Supports returns nil if the op's kernels take the types, shapes and attributes of the site. Otherwise the site must
// not be rewritten: if a kernel library is registered, its op shadows the function body even for types that the kernel
// lacks, and the model would not load. Unknown dimensions are an error only if the definition needs them. The error is
// a *reason.Reason.
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
		a, b := s.Shape(same[0]), s.Shape(i)
		if a != nil && b != nil && !agree(a, b) {
			return fmt.Errorf("%s does not broadcast: %s is %v, %s is %v", o.Name, o.Inputs[same[0]].Name, a,
				o.Inputs[i].Name, b)
		}
	}
	if err := o.checkTypes(s); err != nil {
		return reason.New(reason.Types, nil, "%w", err).With("op", o.Name)
	}
	if err := o.checkShapes(s); err != nil || o.Check == nil {
		return err
	}
	return o.Check(s)
}

// Function builds the definition for the site: a model-local function that imports the site's opset. Sites with the
// same Overload and opset get equal functions. Function returns an error if the opset is older than MinOpset or the op
// does not support the site, and ErrNoBody if the op supports the site, but nodes there have no definition.
func (o *Op) Function(s Site) (*onnx.Function, error) {
	if s.Opset < MinOpset {
		return nil, fmt.Errorf("mojo.%s needs opset %d or newer, but the model imports %d; convert it first "+
			"with onnx.version_converter", o.Name, MinOpset, s.Opset)
	}
	if err := o.Supports(s); err != nil {
		return nil, err
	}
	if o.NoBody != nil && o.NoBody(s) {
		return nil, fmt.Errorf("mojo.%s %w", o.Name, ErrNoBody)
	}
	f, b := o.function(s, o.Overload(s))
	f.DocString = o.Summary + "\n" + strings.Join(o.Formula, "\n")
	for i, v := range o.Body(b, s) {
		b.output(o.Outputs[i].Name, v)
	}
	return f, nil
}

// function returns a function with the attributes and inputs of the op, and the builder of its body.
func (o *Op) function(s Site, overload string) (*onnx.Function, *Body) {
	f := onnx.NewFunction(Domain, o.Name, overload, s.Opset)
	for _, a := range o.Attributes {
		f.Attributes = append(f.Attributes, a.Name)
	}
	b := &Body{Root: f.Body, Graph: f.Body, Site: s}
	for _, p := range o.Inputs {
		b.In = append(b.In, f.Body.AddInput(p.Name, onnx.Type{}))
	}
	return f, b
}

// Steps builds a function of an op that rounds its first output to 8 bits; it returns nil for other ops. The function
// computes the numbers that the op divides by the scales of rows, and the scales. Its last input is a factor of the
// norm before any rounding. Two factors, one below and one above 1, bound the errors of float32.
func (o *Op) Steps(s Site) *onnx.Function {
	if o.Unrounded == nil {
		return nil
	}
	f, b := o.function(s, "steps")
	b.Nudge = f.Body.AddInput("nudge", onnx.Type{})
	v, scale := o.Unrounded(b, s)
	b.output("v", v)
	b.output("Y_scale", scale)
	return f
}

// Open returns how far correct results at a site may differ, relative to the greatest magnitude. It is more than 0 for
// an op that rounds intermediate results to integers, because sums in another order may round to the other neighbor.
func (o *Op) Open(s Site) float64 {
	if o.Differ == nil {
		return 0
	}
	return o.Differ(s)
}

// OutputNames lists the names of the op's outputs.
func (o *Op) OutputNames() []string {
	names := make([]string, len(o.Outputs))
	for i, p := range o.Outputs {
		names[i] = p.Name
	}
	return names
}

// Overload returns the name of the variant of the definition for the site.
func (o *Op) Overload(s Site) string {
	name := o.Variant(s)
	if s.Opset < castLikeOpset { // without CastLike a body depends on its types
		for i, t := range s.Types {
			if s.Has(i) {
				name += "_" + t.String()
			}
		}
	}
	return name
}

// checkInputs errs unless the site has all required inputs and no more inputs than the op takes.
func (o *Op) checkInputs(s Site) error {
	if len(s.Types) > len(o.Inputs) {
		return fmt.Errorf("mojo.%s takes %d inputs, the site has %d", o.Name, len(o.Inputs), len(s.Types))
	}
	for i, p := range o.Inputs {
		if !p.Optional && !s.Has(i) {
			return fmt.Errorf("mojo.%s: input %s is missing", o.Name, p.Name)
		}
	}
	return nil
}

// agree reports whether two shapes may be equal: -1 agrees with every dimension.
func agree(a, b []int64) bool {
	return slices.EqualFunc(a, b, func(x, y int64) bool { return x < 0 || y < 0 || x == y })
}

// Attr returns the attribute with a name, or an empty attribute if there is none.
func (s Site) Attr(name string) *onnx.Attribute {
	for _, a := range s.Attributes {
		if a.Name == name {
			return a
		}
	}
	return &onnx.Attribute{}
}

// Has reports whether input i is given.
func (s Site) Has(i int) bool { return i < len(s.Types) && s.Types[i] != onnx.Undefined }

// Shape returns the shape of input i, or nil if it is unknown.
func (s Site) Shape(i int) []int64 {
	if i < len(s.Dims) {
		return s.Dims[i]
	}
	return nil
}

// LastDim returns the last dimension of input i, or -1 if it is unknown.
func (s Site) LastDim(i int) int64 {
	d := s.Shape(i)
	if len(d) == 0 {
		return -1
	}
	return d[len(d)-1]
}

// IfGiven returns word if the site has the input, or "".
func IfGiven(s Site, input int, word string) string {
	if s.Has(input) {
		return word
	}
	return ""
}

// The values of attributes for how a matrix is stored: [N, K], as torch.nn.Linear does, or [K, N].
const (
	LayoutOutIn = "out_in"
	LayoutInOut = "in_out"
)

// The layouts of pairs of channels: all first ones, then all second ones, or in turn.
const (
	LayoutHalves      = "halves"
	LayoutInterleaved = "interleaved"
)
