/* How a call of MoE or QMoE goes: what tables of measurements say (moe_tables.h), and the kernels take. */
#pragma once

/* MojoMoEKernel is what multiplies. */
typedef enum {
  kMojoAnyKernel, /* for the library to choose */
  kMojoFew,       /* few choices: no plan, and weights go from memory into registers */
  kMojoMma,       /* tiles of choices, by mma.sync */
  kMojoWgmma      /* tiles of choices, by wgmma: compute capability 9.0 */
} MojoMoEKernel;

/* MojoMoEConfig has zeros for what the library is to choose. It changes the order of sums, and no more. */
typedef struct {
  MojoMoEKernel kernel;
  int tile;  /* choices in a tile */
  int split; /* blocks that share the columns of a tile: 1, 2, 4 or 8; of QMoE with kMojoWgmma alone */
} MojoMoEConfig;
