package session

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/launch"
	"github.com/mojo-patch/mojo-patch/ort"
	"github.com/mojo-patch/mojo-patch/rewrite/shard"
	"github.com/spf13/cobra"
)

// RanksHelp is the help about folders of shard.
const RanksHelp = `MODEL may be a folder of mojo-patch shard. Each rank is then a process: mpirun, torchrun or srun starts
this command once for each rank. Every process opens the model of its rank, and rank 0 prints.`

// Ranks replaces each argument that is a folder of shard by the model of this process's rank. It prepares flags and
// outputs for that: only rank 0 prints, and errors name the rank. Call it before Check.
func (b *Backend) Ranks(a *cli.App, c *cobra.Command, args []string) ([]string, error) {
	args = slices.Clone(args)
	for i, folder := range args {
		if info, err := os.Stat(folder); folder != "" && (err != nil || info.IsDir()) {
			b.launched(a)
		}
		if !shard.IsFolder(folder) {
			continue
		}
		p, err := shard.ReadPlan(folder)
		if err != nil {
			b.begin()
			return nil, err
		}
		if p.Form == shard.TensorRT {
			return nil, fmt.Errorf("%s has models for TensorRT, which mojo-patch cannot run: divide the model without "+
				"--collectives tensorrt", folder)
		}
		if err := b.join(a, c, folder, int(p.Ranks)); err != nil {
			return nil, err
		}
		if err := p.Check(folder, int64(a.Rank)); err != nil {
			b.begin()
			return nil, err
		}
		args[i] = filepath.Join(folder, shard.RankFile(int64(a.Rank)))
	}
	return args, nil
}

// launched notes that the command runs a folder, which may be missing, as one of several ranks.
func (b *Backend) launched(a *cli.App) {
	if place, err := launch.Find(os.LookupEnv); err == nil && place.Ranks > 1 {
		b.ranked, a.Rank, a.Ranks = true, place.Rank, place.Ranks
	}
}

// begin begins to connect a rank to the others, which then notice it if this one fails.
func (b *Backend) begin() {
	device, ok := KernelDevices[b.Provider]
	if !ok {
		device = fused.CPU
	}
	path, err := device.FindLibrary(b.KernelsLib)
	if b.ranked && err == nil { // otherwise opening the model reports the error
		ort.BeginCollectives(path)
	}
}

// join makes this process one of the ranks of a folder.
func (b *Backend) join(a *cli.App, c *cobra.Command, folder string, ranks int) error {
	place, err := launch.Find(os.LookupEnv)
	if errors.Is(err, launch.ErrNone) && ranks > 1 {
		command := c.CommandPath() + " " + folder
		return fmt.Errorf("%s is a model for %d ranks, and each rank is a process: start them with a launcher, for "+
			"example\n  mpirun -n %d %s\n  torchrun --nproc-per-node %d --no-python %s", folder, ranks, ranks, command,
			ranks, command)
	}
	if errors.Is(err, launch.ErrNone) {
		place, err = launch.Process{Ranks: 1}, nil
	}
	if err != nil {
		return err
	}
	b.place, a.Rank, a.Ranks = &place, place.Rank, place.Ranks
	switch {
	case place.Ranks != ranks:
		return fmt.Errorf("%s is a model for %d ranks, but the launcher (%s) started %d", folder, ranks,
			place.Launcher, place.Ranks)
	case b.Evaluator:
		return fmt.Errorf("--evaluator cannot run the ranks of %s: they exchange values by kernels", folder)
	case b.Kernels == KernelsOff:
		return fmt.Errorf("--kernels off cannot run the ranks of %s: they exchange values by kernels", folder)
	}
	b.Kernels = KernelsOn
	if a.Rank > 0 {
		a.Out, a.Quiet, a.Lines = io.Discard, true, false
	}
	return nil
}

// RejectRanked returns an error for a flag that cannot be used with the model of a rank.
func (b *Backend) RejectRanked(given bool, flag, reason string) error {
	if given && b.place != nil {
		return fmt.Errorf("%s cannot be used with a folder of shard: %s", flag, reason)
	}
	return nil
}

// device adds the GPU of this rank to the options of the CUDA provider, unless they name one.
func (b *Backend) device(options map[string]string) error {
	switch {
	case b.place == nil || options["device_id"] != "":
		return nil
	case b.place.Local < 0:
		return fmt.Errorf("the launcher (%s) does not tell which GPU of the host this rank uses: set LOCAL_RANK",
			b.place.Launcher)
	}
	options["device_id"] = strconv.Itoa(b.place.Local)
	return nil
}
