package launch

import (
	"errors"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		variables string
		want      Process
		err       string
	}{
		{"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0",
			Process{1, 4, 0, "Open MPI"}, ""},
		{"PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1", Process{3, 4, 1, "PMI"}, ""},
		{"PMI_RANK=3 PMI_SIZE=4", Process{3, 4, -1, "PMI"}, ""},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", Process{0, 2, 0, "torchrun or Kubernetes"}, ""},
		{"RANK=1 WORLD_SIZE=2", Process{1, 2, -1, "torchrun or Kubernetes"}, ""},
		{"SLURM_PROCID=7 SLURM_NTASKS=8 SLURM_LOCALID=3", Process{7, 8, 3, "Slurm"}, ""},
		// launchers inside a step of Slurm
		{"SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 RANK=1 WORLD_SIZE=2 LOCAL_RANK=1",
			Process{1, 2, 1, "torchrun or Kubernetes"}, ""},
		{"SLURM_PROCID=0 RANK=1 WORLD_SIZE=2", Process{1, 2, -1, "torchrun or Kubernetes"}, ""},
		{"PMI_RANK=1 PMI_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1", Process{1, 2, -1, "PMI"}, ""},
		// two that agree
		{"PMI_RANK=1 PMI_SIZE=2 RANK=1 WORLD_SIZE=2 LOCAL_RANK=1", Process{1, 2, 1, "PMI"}, ""},

		{"PMI_RANK=1 PMI_SIZE=2 RANK=0 WORLD_SIZE=2", Process{},
			"contradict each other: rank 1 of 2 by PMI, rank 0 of 2 by torchrun or Kubernetes"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=4", Process{}, "contradict"},
		{"RANK=1", Process{}, "$RANK is set, but $WORLD_SIZE is not"},
		{"WORLD_SIZE=1", Process{}, "$WORLD_SIZE is set, but $RANK is not"},
		{"PMI_SIZE=1 RANK= ", Process{}, "$PMI_SIZE is set, but $PMI_RANK is not"},
		{"SLURM_PROCID=0", Process{}, "$SLURM_PROCID is set, but $SLURM_NTASKS is not"},
		{"RANK=2 WORLD_SIZE=2", Process{}, "$RANK is 2, but $WORLD_SIZE is 2"},
		{"RANK=0 WORLD_SIZE=0", Process{}, "$RANK is 0, but $WORLD_SIZE is 0"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2", Process{}, "$LOCAL_RANK is 2"},
		{"RANK=-1 WORLD_SIZE=2", Process{}, `$RANK is "-1"`},
		{"RANK=0 WORLD_SIZE=two", Process{}, `$WORLD_SIZE is "two"`},
		{"RANK=0 WORLD_SIZE=99999999999999999999", Process{}, "$WORLD_SIZE"},
	} {
		variables := map[string]string{}
		for _, v := range strings.Fields(c.variables) {
			name, value, _ := strings.Cut(v, "=")
			variables[name] = value
		}
		got, err := Find(func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v; want %+v", c.variables, got, err, c.want)
		case c.err != "" && (err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %+v, %v; want an error with %q", c.variables, got, err, c.err)
		}
	}
	if _, err := Find(func(string) (string, bool) { return "", false }); !errors.Is(err, ErrNone) {
		t.Errorf("without variables: %v", err)
	}
}
