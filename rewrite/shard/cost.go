package shard

import (
	"math"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// A Device has the two constants of an estimate.
type Device struct {
	Name string `json:"name"`
	// Bandwidth is of the memory, in bytes per second.
	Bandwidth float64 `json:"bytes_per_second"`
	// Latency is the time of a small collective operation, in seconds.
	Latency float64 `json:"collective_seconds"`
}

// devices are the devices of estimates, by the form of collective operations. NVIDIA's data sheet of the H200 gives
// 4.8 TB/s. The latencies were measured on two of them (2026-11-30), for AllReduce and AddRMSNorm of [6, 6144] in
// bfloat16: 4.4 us fused, and 9.3 us by NCCL and AddRMSNorm.
var devices = map[Form]Device{
	Mojo:     {"H200", 4.8e12, 4.4e-6},
	TensorRT: {"H200, NCCL", 4.8e12, 9.3e-6},
}

// A Cost estimates one step of a decoder with one token. Steps are limited by the weights that are read; caches,
// arithmetic and the sizes of exchanged values are not in the estimate.
type Cost struct {
	// Whole is the number of bytes of weights that a step reads in the whole model, and Rank in a rank's model. Of a
	// table it reads one row, and of a mixture the chosen experts; they are evenly spread over ranks.
	Whole int64 `json:"read_bytes_before"`
	Rank  int64 `json:"read_bytes"`
	// Collectives is the number of collective operations of a step, and Bytes the size of their results.
	Collectives int   `json:"collectives"`
	Bytes       int64 `json:"collective_bytes"`
	// Slices is the number of tokens from which a prompt would take less time if each rank normalized a slice of its
	// tokens, between ReduceScatter and AllGather: as many bytes are exchanged, the residual sum is read and written
	// once instead of by each rank, and an operation is added. 0: no norm follows a sum.
	Slices int64 `json:"slices_from_tokens"`
	// Device is the device of the estimates.
	Device    Device     `json:"device"`
	Estimates []Estimate `json:"estimates"`
}

// An Estimate is the time of a step if the same weights were divided by this number of ranks.
type Estimate struct {
	Ranks   int64   `json:"ranks"`
	Read    int64   `json:"read_bytes"`
	Seconds float64 `json:"seconds"`
}

// most is the greatest number of ranks of an estimate.
const most = 64

// readBy returns the bytes of a constant that a reader reads for one token.
func (p *Plan) readBy(u onnx.Use) int64 {
	t := u.Node.Inputs[u.Index].Constant()
	if t == nil {
		return 0
	}
	n, size := u.Node, t.Size()
	switch {
	case len(t.Dims) == 0 || t.Dims[0] == 0:
	case n.Is("Gather") && u.Index == 0 && n.AttrInt("axis", 0) == 0:
		return size / t.Dims[0]
	case n.Domain == fused.Domain && n.OpType == fused.EmbeddingName && u.Index > 0:
		return 0 // one row of a quantized table is little
	case isMixture(n) && u.Index >= fused.MoEGateUp:
		if chosen, ok := p.facts.Dim(n.Inputs[fused.MoEIDs], -1); ok {
			return size * min(chosen, t.Dims[0]) / t.Dims[0]
		}
	}
	return size
}

// isLookup reports whether a reader reads one row of a table on every rank.
func isLookup(u onnx.Use) bool { return u.Node.Is("Gather") && u.Index == 0 }

// read returns the bytes of weights that a step reads in the model of one of so many ranks.
func (p *Plan) read(ranks int64) (sum int64) {
	for _, v := range p.model.Graph.Initializers() {
		most := int64(0) // a constant with several readers is read once
		for _, u := range v.Uses() {
			n := p.readBy(u)
			if l, cut := p.cut[u]; cut && !isLookup(u) {
				n = p.partAt(l, n, ranks)
			}
			most = max(most, n)
		}
		sum += most
	}
	return sum
}

// partAt returns the size of the largest part for another number of ranks than the plan's. Parts that ranks share, and
// units, cannot be divided more.
func (p *Plan) partAt(l Layout, size, ranks int64) int64 {
	switch {
	case ranks == p.Ranks:
	case l.Pieces != nil:
		part := int64(0)
		for i, n := range l.Runs {
			part += p.partAt(l.Pieces[i], n, ranks)
		}
		return size * part / l.all(0)
	case l.Copies > 1:
		return size / min(ranks, l.parts(p.Ranks))
	case l.Units > 0:
		ranks, l.Ranges = min(ranks, l.Units), nil
	}
	return l.largest(size, ranks)
}

// inStep returns the numbers of the blocks that a step runs: of the branches of a node, those of the branch with most.
func (p *Plan) inStep() (list []int) {
	of, most := map[*onnx.Graph]int{}, map[*onnx.Node]*onnx.Graph{}
	for _, b := range p.blocks {
		of[b.graph]++
		if g := most[b.owner]; g == nil || of[b.graph] > of[g] {
			most[b.owner] = b.graph
		}
	}
	for i, b := range p.blocks {
		if most[b.owner] == b.graph {
			list = append(list, i)
		}
	}
	return list
}

// estimate computes the costs of the plan and of its blocks.
func (p *Plan) estimate() {
	c := Cost{Device: devices[p.Form], Whole: p.read(1), Rank: p.read(p.Ranks)}
	for i := range p.Blocks {
		b := &p.Blocks[i]
		seen := map[*onnx.Value]bool{}
		for u, l := range p.blocks[i].weights {
			if v := u.Node.Inputs[u.Index]; !isLookup(u) && !seen[v] {
				seen[v] = true
				b.Saved += p.readBy(u) - l.largest(p.readBy(u), p.Ranks)
			}
		}
	}
	norms, sums := 0.0, 0.0 // operations in norms, and bytes of a token's residual sums
	for _, i := range p.inStep() {
		for _, o := range p.Blocks[i].Collectives {
			c.Collectives++
			c.Bytes += o.Bytes
			if o.Op == fused.AllReduceAddRMSNormName {
				norms++
				sums += float64(2 * o.Bytes)
			}
		}
	}
	if saved := sums * (1 - 1/float64(p.Ranks)) / c.Device.Bandwidth; saved > 0 {
		c.Slices = int64(math.Round(norms * c.Device.Latency / saved))
	}
	for ranks := int64(1); ranks <= most; ranks *= 2 {
		e := Estimate{Ranks: ranks, Read: p.read(ranks)}
		e.Seconds = float64(e.Read) / c.Device.Bandwidth
		if ranks > 1 {
			e.Seconds += float64(c.Collectives) * c.Device.Latency
		}
		c.Estimates = append(c.Estimates, e)
	}
	p.Cost = c
}

// Loss returns the estimated seconds by which a block makes a step longer: its operations take longer than the reads
// that it saves. It is 0 or less if the block pays.
func (p *Plan) Loss(b *Block) float64 {
	d := p.Cost.Device
	return float64(len(b.Collectives))*d.Latency - float64(b.Saved)/d.Bandwidth
}
