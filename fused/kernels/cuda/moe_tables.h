// Tables of how experts are multiplied fastest, by the number of tokens: what `mojo-patch tune` measures.
//
// A table is a JSON file (docs/tune.md), for experts of one shape and format. It is one that comes with the library, or
// one of the files that MOJO_MOE_CONFIG names, which come first. A call goes as the entry of the nearest number of
// tokens says among those that the kernels take it by, or without a table as they choose by themselves.
#ifndef MOJO_KERNELS_CUDA_MOE_TABLES_H_
#define MOJO_KERNELS_CUDA_MOE_TABLES_H_

#include <stddef.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda/moe_config.h"

namespace mojo {

// MoETableShape is what a table was measured with.
struct MoETableShape {
  std::string format;  // bfloat16, float16, mxfp4 or fp8
  bool in_out = false;
  size_t experts = 0, top_k = 0, hidden = 0, inner = 0;
};

bool operator==(const MoETableShape& a, const MoETableShape& b);

// MoETableEntry is how so many tokens are multiplied.
struct MoETableEntry {
  size_t tokens;
  MojoMoEConfig config;
};

// MoETable is one file. One of Alpha-MoE says nothing of a shape: it is for all experts in fp8, and the tiles of its
// entries are the least of ours that hold as many tokens.
struct MoETable {
  std::string source;  // for messages
  MoETableShape shape;
  bool alpha = false;
  bool shipped = false;
  int capability = 0;  // of the device; 0 for any
  std::vector<MoETableEntry> entries;
};

// ReadMoETable reads a file's text, and returns what is wrong with it: nothing, mostly.
std::string ReadMoETable(const std::string& text, const std::string& source, MoETable* table);

// ReadMoETables reads the files of a list, parted by colons: the value of MOJO_MOE_CONFIG, which may be null. It adds
// the tables that come with the library, but for the value "none", which is for no table at all.
std::string ReadMoETables(const char* files, std::vector<MoETable>* tables);

// TakesMoEConfig reports whether the kernels take a call by a config.
using TakesMoEConfig = std::function<bool(const MojoMoEConfig&)>;

// FindMoEConfig returns what the first table for the shape and device says of so many tokens: zeros without one.
MojoMoEConfig FindMoEConfig(const std::vector<MoETable>& tables, const MoETableShape& shape, int capability,
                            size_t tokens, const TakesMoEConfig& takes);

// CheckMoETable returns what is wrong with a user's table for this device: an entry that the kernels do not take with
// as many tokens as it is for, or that it is of another device.
std::string CheckMoETable(const MoETable& table, int capability,
                          const std::function<bool(size_t tokens, const MojoMoEConfig&)>& takes);

// kShippedMoETables are the files of the folder moe_tables, by name and text; null at the end.
extern const char* const kShippedMoETables[][2];

}  // namespace mojo

#endif  // MOJO_KERNELS_CUDA_MOE_TABLES_H_
