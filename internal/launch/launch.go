// Package launch reads which rank of a distributed run this process is, from the variables that launchers set: mpirun
// and mpiexec, torchrun, Kubernetes and Slurm.
package launch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Process is one process of a distributed run.
type Process struct {
	Rank, Ranks int
	Local       int    // the rank among the processes of this host, -1 if the launcher does not tell
	Launcher    string // the variables' origin, for messages
}

// ErrNone means that no launcher started the process.
var ErrNone = errors.New("no launcher started this process: neither OMPI_COMM_WORLD_RANK, PMI_RANK, RANK nor " +
	"SLURM_PROCID is set")

// launcher is a set of variables.
type launcher struct {
	name               string
	rank, ranks, local string
}

// launchers are tried in this order. Slurm is last because its variables describe the job step, in which another
// launcher may start more processes.
var launchers = []launcher{
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
	{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	{"torchrun or Kubernetes", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
	{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
}

// Find returns this process's place. lookup is os.LookupEnv. The error is ErrNone if no launcher started the process;
// variables that are half set, malformed or contradictory are other errors.
func Find(lookup func(string) (string, bool)) (Process, error) {
	var found *Process
	for i, l := range launchers {
		p, ok, err := l.read(lookup)
		switch {
		case i == len(launchers)-1 && found != nil:
			return *found, nil
		case err != nil:
			return Process{}, err
		case !ok:
		case found == nil:
			found = &p
		case p.Rank != found.Rank || p.Ranks != found.Ranks:
			return Process{}, fmt.Errorf("the variables of two launchers contradict each other: rank %d of %d by %s, "+
				"rank %d of %d by %s (unset the variables of one of them)", found.Rank, found.Ranks, found.Launcher,
				p.Rank, p.Ranks, p.Launcher)
		case found.Local < 0:
			found.Local = p.Local
		}
	}
	if found == nil {
		return Process{}, ErrNone
	}
	return *found, nil
}

// read returns the place by one launcher's variables, false if they are not set.
func (l launcher) read(lookup func(string) (string, bool)) (Process, bool, error) {
	rank, hasRank := set(lookup, l.rank)
	ranks, hasRanks := set(lookup, l.ranks)
	if !hasRank && !hasRanks {
		return Process{}, false, nil
	}
	if hasRank != hasRanks {
		there, missing := l.rank, l.ranks
		if hasRanks {
			there, missing = missing, there
		}
		return Process{}, false, fmt.Errorf("$%s is set, but $%s is not: set both, or neither", there, missing)
	}
	p := Process{Local: -1, Launcher: l.name}
	var errs [3]error
	p.Rank, errs[0] = number(l.rank, rank)
	p.Ranks, errs[1] = number(l.ranks, ranks)
	if local, ok := set(lookup, l.local); ok {
		p.Local, errs[2] = number(l.local, local)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return Process{}, false, err
	}
	if p.Rank >= p.Ranks {
		return Process{}, false, fmt.Errorf("$%s is %d, but $%s is %d: ranks count from 0", l.rank, p.Rank, l.ranks,
			p.Ranks)
	}
	if p.Local >= p.Ranks {
		return Process{}, false, fmt.Errorf("$%s is %d, but $%s is %d", l.local, p.Local, l.ranks, p.Ranks)
	}
	return p, true, nil
}

// set returns a variable that is set and not empty.
func set(lookup func(string) (string, bool), name string) (string, bool) {
	value, _ := lookup(name)
	value = strings.TrimSpace(value)
	return value, value != ""
}

func number(name, text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 20)
	if err != nil {
		return 0, fmt.Errorf("$%s is %q: it must be a number of 0 or more", name, text)
	}
	return int(n), nil
}
