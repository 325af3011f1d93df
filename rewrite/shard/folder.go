package shard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/regular"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// PlanFile is the name of the plan in a folder of rank models.
const PlanFile = "plan.json"

// rankFile is the name of a rank's model.
const rankFile = "rank-%d.onnx"

// RankFile returns the name of a rank's model in its folder.
func RankFile(rank int64) string { return fmt.Sprintf(rankFile, rank) }

// RankOf returns the folder and the rank of a model file; ok is false if the file is not in a folder of rank models.
func RankOf(path string) (folder string, rank int64, ok bool) {
	folder = filepath.Dir(path)
	_, err := fmt.Sscanf(filepath.Base(path), rankFile, &rank)
	return folder, rank, err == nil && IsFolder(folder)
}

// Write writes the models of all ranks and the plan to a new folder (onnx.WriteFolder).
func (p *Plan) Write(folder string) error {
	var models []onnx.FolderModel
	for rank := range p.Ranks {
		m, err := p.Model(rank)
		if err != nil {
			return err
		}
		models = append(models, onnx.FolderModel{File: RankFile(rank), Model: m})
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return onnx.WriteFolder(folder, models, func(folder string) error {
		return os.WriteFile(filepath.Join(folder, PlanFile), append(text, '\n'), 0o666)
	})
}

// IsFolder reports whether path is a folder with a plan.
func IsFolder(path string) bool {
	info, err := os.Stat(filepath.Join(path, PlanFile))
	return err == nil && info.Mode().IsRegular()
}

// largestPlan is the greatest size of a plan file, in bytes.
const largestPlan = 256 << 20

// ReadPlan reads the plan of a folder. The plan describes the division; it makes no models.
func ReadPlan(folder string) (*Plan, error) { return ReadPlanFile(filepath.Join(folder, PlanFile)) }

// ReadPlanFile reads a plan.
func ReadPlanFile(path string) (*Plan, error) {
	b, err := regular.ReadFile(path, largestPlan)
	if err != nil {
		return nil, fmt.Errorf("cannot read the plan: %w", err)
	}
	p := &Plan{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.Schema != Schema || p.Ranks < 1 {
		return nil, fmt.Errorf("%s is not a plan of mojo-patch shard: it has schema %d and %d ranks", path, p.Schema,
			p.Ranks)
	}
	return p, nil
}

// Check errs unless the plan in a folder is as shard wrote it, and the rank's model is of this plan. It leaves errors
// of a missing or broken model to the caller, which opens the model.
func (p *Plan) Check(folder string, rank int64) error {
	own, err := p.ownDigest()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(p.Digest, own) {
		return fmt.Errorf("%s is not as mojo-patch shard wrote it: restore it, or pass it as --plan to "+
			"mojo-patch shard and run the new folder", filepath.Join(folder, PlanFile))
	}
	path := filepath.Join(folder, RankFile(rank))
	m, err := onnx.Read(path)
	if err != nil {
		return nil
	}
	defer m.Close()
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			if isCollective(n) && n.AttrString(fused.AttrPlan, p.Digest) != p.Digest {
				return fmt.Errorf("node %q of %s is of another plan than %s: run the files of one folder",
					n.Label(), path, PlanFile)
			}
		}
	}
	return nil
}

// Part returns a rank's part of a whole input or output, whose size along the port's axis is size in the rank's model.
// It returns a tensor that has this size already.
func (p *Plan) Part(port Port, t *onnx.Tensor, rank, size int64) (*onnx.Tensor, error) {
	if port.Axis >= 0 && port.Axis < len(t.Dims) && t.Dims[port.Axis] == size {
		return t, nil
	}
	return port.cut(t, t.Name, rank, p.Ranks)
}
