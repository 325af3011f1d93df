// Command sharded runs one rank of a model that was divided by mojo-patch shard, and compares with recorded outputs.
//
// usage: torchrun --nproc-per-node 2 --no-python sharded FOLDER GOLDEN.npz, or mpirun -n 2 sharded FOLDER GOLDEN.npz
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/ort"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: sharded FOLDER GOLDEN.npz")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		ort.LeaveCollectives()
		log.Fatal(err)
	}
	ort.EndCollectives()
}

func run(folder, recorded string) error {
	// From here on, the other ranks notice it if this one fails.
	kernels, err := fused.FindLibrary("")
	if err != nil {
		return err
	}
	ort.BeginCollectives(kernels)

	// Every launcher says which rank it started. The kernels read the same variables.
	var rank string
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "SLURM_PROCID"} {
		if rank = os.Getenv(name); rank != "" {
			break
		}
	}
	if rank == "" {
		return errors.New("start this program with mpirun, torchrun or srun")
	}
	session, err := ort.Open(filepath.Join(folder, "rank-"+rank+".onnx"), ort.WithKernels())
	if err != nil {
		return err
	}
	defer session.Close()

	// All ranks run on the same inputs. (A rank of a model with caches has its own heads in them.)
	cases, err := golden.Load(recorded, nil)
	if err != nil {
		return err
	}
	outputs, err := session.Run(cases[0].Inputs)
	if err != nil {
		return err
	}
	stats, err := golden.CompareAll(outputs[:1], cases[0].Outputs[:1], golden.Tolerances{})
	if err != nil {
		return err
	}
	difference := stats[0].MaxAbs / stats[0].MaxWant
	if rank == "0" {
		fmt.Printf("%s: largest difference %.2g of the largest magnitude\n", outputs[0].Name, difference)
	}
	if !(difference < 1e-5) {
		return fmt.Errorf("rank %s: that is too much", rank)
	}
	return nil
}
