package wire

import "github.com/mojo-patch/mojo-patch/onnx/internal/onnxpb"

// Tensors calls f for every TensorProto of a model, in all fields that wireFields lists, in file order.
// initializer distinguishes initializers (of any graph) from tensors in attributes and sparse tensors.
type Tensors func(p *onnxpb.TensorProto, initializer bool)

// Model calls f for the tensors of a model.
func (f Tensors) Model(p *onnxpb.ModelProto) {
	f.graph(p.Graph)
	for _, t := range p.TrainingInfo {
		f.training(t)
	}
	for _, fn := range p.Functions {
		f.nodes(fn.Node)
		f.attributes(fn.AttributeProto)
	}
}

func (f Tensors) training(p *onnxpb.TrainingInfoProto) {
	f.graph(p.Initialization)
	f.graph(p.Algorithm)
}

func (f Tensors) graph(p *onnxpb.GraphProto) {
	if p == nil {
		return
	}
	f.nodes(p.Node)
	for _, t := range p.Initializer {
		f(t, true)
	}
	for _, s := range p.SparseInitializer {
		f.Sparse(s)
	}
}

func (f Tensors) nodes(ps []*onnxpb.NodeProto) {
	for _, p := range ps {
		f.attributes(p.Attribute)
	}
}

func (f Tensors) attributes(ps []*onnxpb.AttributeProto) {
	for _, p := range ps {
		if p.T != nil {
			f(p.T, false)
		}
		f.graph(p.G)
		for _, t := range p.Tensors {
			f(t, false)
		}
		for _, g := range p.Graphs {
			f.graph(g)
		}
		f.Sparse(p.SparseTensor)
		for _, s := range p.SparseTensors {
			f.Sparse(s)
		}
	}
}

// Sparse calls f for both parts of a sparse tensor.
func (f Tensors) Sparse(p *onnxpb.SparseTensorProto) {
	if p.GetValues() != nil {
		f(p.Values, false)
	}
	if p.GetIndices() != nil {
		f(p.Indices, false)
	}
}
