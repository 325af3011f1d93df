package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/ort/kernels"
	"github.com/mojo-patch/mojo-patch/ort/providers"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
)

// The sources of a placement.
const (
	sourceSession  = "session"
	sourceRegistry = "registry"
	sourceFused    = "fused"
	sourceTable    = "table"
)

// placement maps nodes to the short names of the providers that run them.
type placement struct {
	nodes map[*onnx.Node]string
}

func (p *placement) of(n *onnx.Node) string { return p.nodes[n] }

// place asks onnxruntime where the nodes run. If that is impossible, missing is the reason, and place uses the table of
// kernels or places only the fused ops.
func (f *options) place(a *cli.App, m *onnx.Model, r *Report) (p *placement, missing, err error) {
	facts := infer.Analyze(m)
	lib, err := ort.Find(f.backend.Onnxruntime)
	if err != nil {
		return f.placeHere(r, m, facts, err)
	}
	r.Runtime = "onnxruntime " + lib.Version
	alone := &loneNodes{flags: f, app: a, lib: lib, model: m, facts: facts, known: map[string]lonePlace{}}
	session, what, err := f.backend.Session(a, m, lib, ort.WithPlacement())
	switch {
	case err != nil && cli.ExitCode(err) == cli.ExitEnvironment:
		return f.placeHere(r, m, facts, err)
	case err != nil:
		r.Source, r.Refused = sourceRegistry, err.Error()
		p, err = f.placeAlone(r, alone)
		return p, nil, err
	}
	defer session.Close()
	r.Source, r.Runtime = sourceSession, what
	placed, err := session.Placement()
	if err != nil {
		return nil, nil, err
	}
	return f.placeSession(r, alone, placed), nil, nil
}

// placeHere places nodes without onnxruntime's provider; missing is why the provider is not available. It places fused
// ops by their catalog, and other nodes by the table of kernels if the table has the provider.
func (f *options) placeHere(r *Report, m *onnx.Model, facts *infer.Facts, missing error) (*placement, error,
	error) {
	device := map[string]string{session.ProviderCPU: kernels.CPU,
		session.ProviderCUDA: kernels.CUDA}[f.backend.Provider]
	if r.Source = sourceFused; device != "" {
		r.Source, r.Runtime, missing = sourceTable, "onnxruntime "+kernels.Newest(device).Name, nil
	}
	p := &placement{nodes: map[*onnx.Node]string{}}
	place := func(n *onnx.Node, refused error, otherwise, reason string) {
		if refused == nil {
			p.nodes[n] = f.backend.Provider
			r.Placed[f.backend.Provider]++
			return
		}
		if otherwise != "" {
			p.nodes[n] = otherwise
			r.Placed[otherwise]++
		}
		r.elsewhere(placedOp{cli.DomainName(n.Domain), n.OpType, inputTypes(n, facts), otherwise, 0, reason})
	}
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			switch op := fused.Lookup(n.OpType); {
			case n.Domain == fused.Domain && op != nil:
				place(n, f.hasFused(op, n, m, facts), "", "no kernel for "+f.backend.Provider+
					": its function body runs")
			case device != "" && !n.Is("Constant") && m.Function(n.Domain, n.OpType, n.Overload) == nil:
				on, err := listed(device, n, m, facts)
				place(n, err, on, fmt.Sprint(err))
			}
		}
	})
	return p, missing, nil
}

// listed looks a node up in the table of kernels. It returns why the device has no kernel for it, and the short name of
// a provider that has one, or "".
func listed(device string, n *onnx.Node, m *onnx.Model, facts *infer.Facts) (on string, refused error) {
	var types []onnx.DataType
	for _, v := range n.Inputs {
		types = append(types, facts.DataType(v))
	}
	opset, runtime := m.Opset(n.Domain), kernels.Newest(device)
	refused = runtime.Refused(device, n.Domain, n.OpType, opset, types)
	if refused == nil {
		refused = kernels.RefusedReduction(device, n, types)
	}
	switch {
	case refused == nil:
		return providers.Short(device), nil
	case device == kernels.CPU:
		return "", refused
	case runtime.Refused(kernels.CPU, n.Domain, n.OpType, opset, types) != nil:
		return "", fmt.Errorf("%w; the CPU has no kernel either", refused)
	}
	return providers.Short(session.ProviderCPU), refused
}

// hasFused returns why the provider has no kernel for a fused op, or nil if it has one.
func (f *options) hasFused(op *fused.Op, n *onnx.Node, m *onnx.Model, facts *infer.Facts) error {
	device, ours := session.KernelDevices[f.backend.Provider]
	if !ours || !slices.Contains(op.Devices, device) {
		return errors.New("no kernel")
	}
	return op.Supports(pass.FusedSite(m, facts, n))
}

// placeSession returns the placement of a session.
func (f *options) placeSession(r *Report, alone *loneNodes, placed []ort.PlacedNode) *placement {
	p := &placement{nodes: map[*onnx.Node]string{}}
	named := map[string]*onnx.Node{}
	alone.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			if n.Name != "" {
				named[cli.DomainName(n.Domain)+" "+n.OpType+" "+n.Name] = n
			}
		}
	})
	for _, x := range placed {
		on := providers.Short(x.Provider)
		r.Placed[on]++
		n := named[cli.DomainName(x.Domain)+" "+x.Op+" "+x.Name]
		if n != nil {
			p.nodes[n] = on
		}
		if providers.Same(on, f.backend.Provider) {
			continue
		}
		e := placedOp{Domain: cli.DomainName(x.Domain), Op: x.Op, Types: []string{}, On: on,
			Reason: "a node that onnxruntime added"}
		if n != nil {
			e.Types, e.Reason = inputTypes(n, alone.facts), f.reason(alone, n)
		}
		r.elsewhere(e)
	}
	return p
}

// placeAlone asks onnxruntime for each kind of node separately.
func (f *options) placeAlone(r *Report, alone *loneNodes) (*placement, error) {
	p := &placement{nodes: map[*onnx.Node]string{}}
	var failure error
	alone.model.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			x := alone.place(n)
			p.nodes[n] = x.on
			switch {
			case x.err != nil && cli.ExitCode(x.err) == cli.ExitEnvironment:
				failure = x.err
			case x.err != nil:
				r.elsewhere(placedOp{cli.DomainName(n.Domain), n.OpType, inputTypes(n, alone.facts), "", 0,
					x.err.Error()})
			case x.on == "": // its parts are placed instead
			default:
				r.Placed[x.on]++
				if !providers.Same(x.on, f.backend.Provider) {
					r.elsewhere(placedOp{cli.DomainName(n.Domain), n.OpType, inputTypes(n, alone.facts), x.on, 0,
						f.reason(alone, n)})
				}
			}
		}
	})
	return p, failure
}

// reason returns why a node runs on another provider.
func (f *options) reason(alone *loneNodes, n *onnx.Node) string {
	switch x := alone.place(n); {
	case x.err != nil || x.on == "":
		return "the provider does not support it"
	case providers.Same(x.on, f.backend.Provider):
		return "the provider supports it, but onnxruntime computes shapes on the CPU, or its neighbors run there"
	}
	return "the provider has no kernel for these types and attributes"
}

// elsewhere counts a node that does not run on the provider.
func (r *Report) elsewhere(e placedOp) {
	i := slices.IndexFunc(r.Elsewhere, func(x placedOp) bool {
		return x.Domain == e.Domain && x.Op == e.Op && x.On == e.On && x.Reason == e.Reason &&
			slices.Equal(x.Types, e.Types)
	})
	if i < 0 {
		i = len(r.Elsewhere)
		r.Elsewhere = append(r.Elsewhere, e)
	}
	r.Elsewhere[i].Nodes++
}

// loneNodes opens models of a single node, one for each kind of node.
type loneNodes struct {
	flags *options
	app   *cli.App
	lib   ort.Library
	model *onnx.Model
	facts *infer.Facts
	known map[string]lonePlace
}

// lonePlace is the placement of a node in a separate model. Both fields are empty if the node cannot be tried alone.
type lonePlace struct {
	on  string
	err error
}

func (l *loneNodes) place(n *onnx.Node) lonePlace {
	if len(n.Subgraphs()) > 0 {
		return lonePlace{}
	}
	m, err := l.alone(n)
	if err != nil || m == nil {
		return lonePlace{err: err}
	}
	b, err := onnx.Marshal(m)
	if err != nil {
		return lonePlace{err: err}
	}
	x, ok := l.known[string(b)]
	if !ok {
		x = l.open(m, b)
		l.known[string(b)] = x
	}
	return x
}

// alone returns a model of the node whose inputs are the node's. It is nil if not all of their types are known.
func (l *loneNodes) alone(n *onnx.Node) (*onnx.Model, error) {
	m := onnx.New(l.model.IRVersion, l.model.Opset(""))
	for _, o := range l.model.Opsets {
		m.ImportOpset(o.Domain, o.Version)
	}
	m.Functions = l.model.Functions
	m.Graph.Name = "node"
	given := map[*onnx.Value]*onnx.Value{}
	var in, out []*onnx.Value
	for i, v := range n.Inputs {
		if v == nil {
			in = append(in, nil)
			continue
		}
		if given[v] == nil {
			name := fmt.Sprintf("in%d", i)
			if c, ok := l.facts.Constant(v); ok && c.Len() <= infer.MaxElements { // axes and the like
				t, err := c.ToONNX(name)
				if err != nil {
					return nil, err
				}
				given[v] = m.Graph.AddInitializer(t)
			} else {
				t, ok := l.facts.Type(v)
				if !ok {
					return nil, nil
				}
				for k := range t.Dims {
					t.Dims[k] = onnx.Dim{Value: -1}
				}
				given[v] = m.Graph.AddInput(name, t)
			}
		}
		in = append(in, given[v])
	}
	for i, v := range n.Outputs {
		if v == nil {
			out = append(out, nil)
			continue
		}
		o := m.Graph.NewValue(fmt.Sprintf("out%d", i))
		if t, ok := l.facts.Type(v); ok {
			for k := range t.Dims {
				t.Dims[k] = onnx.Dim{Value: -1}
			}
			o.SetType(t)
		}
		out = append(out, o)
	}
	c := m.Graph.AddNode(n.OpType, in, out, n.Attributes...)
	c.Domain, c.Overload, c.Name = n.Domain, n.Overload, "node"
	for _, o := range out {
		if o != nil {
			m.Graph.AddOutput(o)
		}
	}
	return m, nil
}

// open opens the model of one node. Constants must not be folded: a folded node has no provider.
func (l *loneNodes) open(m *onnx.Model, encoded []byte) lonePlace {
	b := l.flags.backend
	b.OpenModel = func(_ *onnx.Model, options ...ort.Option) (*ort.Session, error) {
		return ort.OpenBytes(encoded, "", options...)
	}
	quiet := *l.app
	quiet.Quiet = true
	s, _, err := b.Session(&quiet, m, l.lib, ort.WithPlacement(), ort.WithOptimization(ort.OptimizeNone))
	if err != nil {
		return lonePlace{err: noKernel(err)}
	}
	defer s.Close()
	placed, err := s.Placement()
	if err != nil {
		return lonePlace{err: err}
	}
	on := l.flags.backend.Provider
	for _, x := range placed { // one node elsewhere places the whole function there
		if !providers.Same(x.Provider, on) {
			on = providers.Short(x.Provider)
			break
		}
	}
	return lonePlace{on: on}
}

// noKernel shortens onnxruntime's message about a kind of node that it has no kernel for.
func noKernel(err error) error {
	if _, what, ok := strings.Cut(err.Error(), "Could not find an implementation for "); ok {
		what, _, _ = strings.Cut(what, " node with name")
		return errors.New("no provider here has a kernel for " + what)
	}
	return err
}
