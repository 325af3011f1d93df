// Tables of the fastest configs for experts, by the number of tokens, as `mojo-patch tune` measures them.
//
// A table is a JSON file (docs/tune.md) for experts of one shape and format. It comes with the library or is a file
// that MOJO_MOE_CONFIG names; those files come first. A call uses the entry with the nearest number of tokens among
// those that the kernels take. Without a table, the kernels choose by themselves.
#pragma once

#include <stddef.h>

#include <functional>
#include <string>
#include <vector>

#include "moe/cuda/moe_config.h"

namespace mojo {

// MoETableShape is the format, layout and sizes of a table's experts.
struct MoETableShape {
  std::string format;  // bfloat16, float16, mxfp4 or fp8
  bool in_out = false;
  size_t experts = 0, top_k = 0, hidden = 0, inner = 0;
};

bool operator==(const MoETableShape& a, const MoETableShape& b);

// MoETableEntry is the config for a number of tokens.
struct MoETableEntry {
  size_t tokens;
  MojoMoEConfig config;
};

// MoETable is one file. An Alpha-MoE file has no shape: it is for all experts in fp8, and its entries use our smallest
// tiles that hold as many tokens.
struct MoETable {
  std::string source;  // for messages
  MoETableShape shape;
  bool alpha = false;
  bool shipped = false;
  int capability = 0;  // of the device; 0 for any
  std::vector<MoETableEntry> entries;
};

// ReadMoETable parses a file's text, and returns its error, or "" if the text is valid.
std::string ReadMoETable(const std::string& text, const std::string& source, MoETable* table);

// ReadMoETables reads the files of a colon-separated list: the value of MOJO_MOE_CONFIG, which may be null. It adds the
// library's own tables, unless the value is "none", which disables all tables.
std::string ReadMoETables(const char* files, std::vector<MoETable>* tables);

// TakesMoEConfig reports whether the kernels take a call with a config.
using TakesMoEConfig = std::function<bool(const MojoMoEConfig&)>;

// FindMoEConfig returns the config of the first matching table for this number of tokens, or zeros.
MojoMoEConfig FindMoEConfig(const std::vector<MoETable>& tables, const MoETableShape& shape, int capability,
                            size_t tokens, const TakesMoEConfig& takes);

// CheckMoETable returns an error if a user's table does not fit this device: it is for another device, or the kernels
// do not take an entry with its number of tokens. It returns "" otherwise.
std::string CheckMoETable(const MoETable& table, int capability,
                          const std::function<bool(size_t tokens, const MojoMoEConfig&)>& takes);

// kShippedMoETables are the files of the folder moe_tables, by name and text; null at the end.
extern const char* const kShippedMoETables[][2];

}  // namespace mojo
