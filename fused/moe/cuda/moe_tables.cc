#include "moe/cuda/moe_tables.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace mojo {
namespace {

// Value is a string or a number.
struct Value {
  bool is_string = false;
  std::string string;
  double number = 0;
};

typedef std::map<std::string, Value> Fields;

// Reader parses an object of objects of strings and numbers, the only JSON in tables.
class Reader {
 public:
  explicit Reader(const std::string& text) : at_(text.c_str()), end_(at_ + text.size()) {}

  // Objects calls object with each key and its fields until that returns an error.
  std::string Objects(const std::function<std::string(const std::string&, const Fields&)>& object) {
    std::string wrong;
    const bool read = Members([&](const std::string& key) {
      Fields fields;
      if (!Members([&](const std::string& field) { return Read(&fields[field]); })) return false;
      wrong = object(key, fields);
      return wrong.empty();
    });
    if (!wrong.empty()) return wrong;
    return read && Skip() == end_ ? "" : "it is no JSON object of objects that hold numbers and strings";
  }

 private:
  const char* Skip() {
    while (at_ < end_ && strchr(" \t\r\n", *at_) != nullptr && *at_ != 0) ++at_;
    return at_;
  }
  bool Take(char c) {
    if (Skip() == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool Members(const std::function<bool(const std::string&)>& member) {
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      std::string key;
      if (!String(&key) || !Take(':') || !member(key)) return false;
    } while (Take(','));
    return Take('}');
  }
  bool String(std::string* to) {
    if (!Take('"')) return false;
    const char* const quote = static_cast<const char*>(memchr(at_, '"', end_ - at_));
    if (quote == nullptr || memchr(at_, '\\', quote - at_) != nullptr) return false;  // names have no escapes
    to->assign(at_, quote);
    at_ = quote + 1;
    return true;
  }
  bool Read(Value* to) {
    if (Skip() == end_) return false;
    if (*at_ == '"') return to->is_string = true, String(&to->string);
    if (strchr("-0123456789", *at_) == nullptr) return false;
    char* after;
    to->number = strtod(at_, &after);
    at_ = after;
    return true;
  }

  const char *at_, *end_;
};

// Find returns a field, or null if it is missing.
const Value* Find(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  return found == fields.end() ? nullptr : &found->second;
}

// Text returns a string field, or "" if it is missing or not a string.
std::string Text(const Fields& fields, const char* name) {
  const Value* const v = Find(fields, name);
  return v == nullptr ? "" : v->string;
}

// Whole reads a whole number from 0 to a million. It returns false if the field is missing or not such a number.
bool Whole(const Fields& fields, const char* name, size_t* to) {
  const Value* const v = Find(fields, name);
  if (v == nullptr || v->is_string || !(v->number >= 0 && v->number <= 1e6)) return false;
  *to = static_cast<size_t>(v->number);
  return static_cast<double>(*to) == v->number;
}

const char* const kFormats[] = {"bfloat16", "float16", "mxfp4", "fp8"};
constexpr char kShapeKey[] = "shape";

std::string ReadShape(const Fields& fields, MoETable* table) {
  MoETableShape& shape = table->shape;
  shape.format = Text(fields, "format");
  if (std::find(std::begin(kFormats), std::end(kFormats), shape.format) == std::end(kFormats)) {
    return "format is \"" + shape.format + "\"; it is one of bfloat16, float16, mxfp4, fp8";
  }
  const std::string layout = Text(fields, "layout");
  shape.in_out = layout == "in_out";
  if (!layout.empty() && layout != "out_in" && layout != "in_out") {
    return "layout is \"" + layout + "\"; it is out_in or in_out";
  }
  const std::pair<const char*, size_t*> sizes[] = {
      {"experts", &shape.experts}, {"top_k", &shape.top_k}, {"hidden", &shape.hidden}, {"inner", &shape.inner}};
  for (const auto& size : sizes) {
    if (!Whole(fields, size.first, size.second) || *size.second == 0) {
      return std::string(size.first) + " is missing, or no whole number above 0";
    }
  }
  size_t capability = 0;
  if (Find(fields, "capability") != nullptr && !Whole(fields, "capability", &capability)) {
    return "capability is no whole number";
  }
  table->capability = static_cast<int>(capability);
  return "";
}

// The names of the kernels, in the order of MojoMoEKernel; auto is for the library to choose.
const char* const kKernels[] = {"auto", "few", "mma", "wgmma"};

// ReadOurs reads an entry of ours: {"kernel": "wgmma", "block_m": 64, "split": 2}.
std::string ReadOurs(const Fields& fields, MojoMoEConfig* config) {
  const std::string kernel = Text(fields, "kernel");
  const auto found = std::find(std::begin(kKernels), std::end(kKernels), kernel);
  if (found == std::end(kKernels)) return "kernel is \"" + kernel + "\"; it is auto, few, mma or wgmma";
  config->kernel = static_cast<MojoMoEKernel>(found - kKernels);
  size_t tile = 0, split = 0;
  if ((Find(fields, "block_m") != nullptr && !Whole(fields, "block_m", &tile)) ||
      (Find(fields, "split") != nullptr && !Whole(fields, "split", &split))) {
    return "block_m and split are whole numbers";
  }
  config->tile = static_cast<int>(tile);
  config->split = static_cast<int>(split);
  return "";
}

// ReadAlpha reads an entry of an Alpha-MoE file. Our kernel has only the first of its parameters.
std::string ReadAlpha(const Fields& fields, MojoMoEConfig* config) {
  size_t m, n, warps, stages;
  if (!Whole(fields, "block_m", &m) || !Whole(fields, "block_n", &n) || !Whole(fields, "warp_n", &warps) ||
      !Whole(fields, "stages", &stages)) {
    return "it has neither a kernel nor block_m, block_n, warp_n and stages, as Alpha-MoE's entries do";
  }
  if (m % 8 != 0 || m < 8 || m > 128 || !((n == 64 && warps == 4) || (n == 32 && warps == 8)) || stages < 1 ||
      stages > 5) {
    return "Alpha-MoE has block_m of 8 to 128 in steps of 8, block_n and warp_n of 64 and 4 or of 32 and 8, and 1 to 5 "
           "stages";
  }
  config->kernel = kMojoWgmma;
  config->tile = static_cast<int>(m);
  return "";
}

std::string ReadEntry(const std::string& key, const Fields& fields, MoETable* table) {
  char* after;
  const unsigned long tokens = strtoul(key.c_str(), &after, 10);
  if (key.empty() || key[0] < '1' || key[0] > '9' || *after != 0 || key.size() > 9) {
    return "it is no number of tokens";
  }
  MoETableEntry entry = {tokens, {}};
  const bool alpha = Find(fields, "kernel") == nullptr;
  if (!table->entries.empty() && alpha != table->alpha) return "entries of ours and of Alpha-MoE do not go together";
  table->alpha = alpha;
  for (const MoETableEntry& other : table->entries) {
    if (other.tokens == tokens) return "there are two of it";
  }
  const std::string wrong = alpha ? ReadAlpha(fields, &entry.config) : ReadOurs(fields, &entry.config);
  table->entries.push_back(entry);
  return wrong;
}

// ReadFile reads a whole file, up to the size limit of tables.
bool ReadFile(const std::string& path, std::string* text) {
  FILE* const file = fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  text->resize(1 << 20);
  text->resize(fread(&(*text)[0], 1, text->size(), file));
  const bool read = ferror(file) == 0 && text->size() < 1 << 20;
  fclose(file);
  return read;
}

// The tile sizes of the kernels, in ascending order.
constexpr int kTiles[] = {8, 16, 32, 64, 128, 256};

// Resolve finds the part of an entry that the kernels take, or returns false if they take no part.
bool Resolve(const MoETable& table, const MojoMoEConfig& entry, const TakesMoEConfig& takes, MojoMoEConfig* to) {
  *to = entry;
  if (!table.alpha) return takes(entry);
  for (const int tile : kTiles) {
    to->tile = tile;
    if (tile >= entry.tile && takes(*to)) return true;
  }
  for (auto tile = std::rbegin(kTiles); tile != std::rend(kTiles); ++tile) {
    to->tile = *tile;
    if (takes(*to)) return true;
  }
  return false;
}

std::string Dotted(int capability) { return std::to_string(capability / 10) + "." + std::to_string(capability % 10); }

// IsFor reports whether a table is for calls of a shape on a device.
bool IsFor(const MoETable& table, const MoETableShape& shape, int capability) {
  if (table.alpha && table.shape.format.empty()) return shape.format == "fp8";
  return (table.capability == 0 || table.capability == capability) && table.shape == shape;
}

}  // namespace

bool operator==(const MoETableShape& a, const MoETableShape& b) {
  return a.format == b.format && a.in_out == b.in_out && a.experts == b.experts && a.top_k == b.top_k &&
         a.hidden == b.hidden && a.inner == b.inner;
}

std::string ReadMoETable(const std::string& text, const std::string& source, MoETable* table) {
  table->source = source;
  bool shaped = false;
  std::string wrong = Reader(text).Objects([&](const std::string& key, const Fields& fields) {
    shaped = shaped || key == kShapeKey;
    const std::string of = key == kShapeKey ? ReadShape(fields, table) : ReadEntry(key, fields, table);
    return of.empty() ? of : "\"" + key + "\": " + of;
  });
  if (wrong.empty() && table->entries.empty()) wrong = "it has no number of tokens";
  if (wrong.empty() && !shaped && !table->alpha) wrong = "it does not say its shape";
  std::sort(table->entries.begin(), table->entries.end(),
            [](const MoETableEntry& a, const MoETableEntry& b) { return a.tokens < b.tokens; });
  return wrong.empty() ? wrong : source + ": " + wrong;
}

std::string ReadMoETables(const char* files, std::vector<MoETable>* tables) {
  const std::string list = files == nullptr ? "" : files;
  if (list == "none") return "";
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    const std::string path = list.substr(at, end - at);
    at = end + 1;
    std::string text;
    if (!ReadFile(path, &text)) return path + ": it cannot be read as a table";
    tables->emplace_back();
    const std::string wrong = ReadMoETable(text, path, &tables->back());
    if (!wrong.empty()) return wrong;
  }
  for (const auto* file = kShippedMoETables; (*file)[0] != nullptr; ++file) {
    tables->emplace_back();
    const std::string wrong = ReadMoETable((*file)[1], (*file)[0], &tables->back());
    if (!wrong.empty()) return wrong;
    tables->back().shipped = true;
  }
  return "";
}

MojoMoEConfig FindMoEConfig(const std::vector<MoETable>& tables, const MoETableShape& shape, int capability,
                            size_t tokens, const TakesMoEConfig& takes) {
  MojoMoEConfig best = {};
  for (const MoETable& table : tables) {
    if (!IsFor(table, shape, capability)) continue;
    size_t nearest = SIZE_MAX;
    for (const MoETableEntry& entry : table.entries) {
      const size_t distance = entry.tokens > tokens ? entry.tokens - tokens : tokens - entry.tokens;
      MojoMoEConfig config;
      if (distance < nearest && Resolve(table, entry.config, takes, &config)) {
        nearest = distance;
        best = config;
      }
    }
    break;
  }
  return best;
}

std::string CheckMoETable(const MoETable& table, int capability,
                          const std::function<bool(size_t tokens, const MojoMoEConfig&)>& takes) {
  // The check skips Alpha-MoE tables, which have tiles for any device with fp8, and the library's own: the kernels
  // ignore entries that a device lacks.
  if (table.shape.format.empty() || table.shipped) return "";
  if (table.capability != 0 && table.capability != capability) {
    return table.source + ": it was measured on compute capability " + Dotted(table.capability) +
           ", and this device has " + Dotted(capability);
  }
  for (const MoETableEntry& entry : table.entries) {
    MojoMoEConfig config;
    const auto with = [&](const MojoMoEConfig& c) { return takes(entry.tokens, c); };
    if (!Resolve(table, entry.config, with, &config)) {
      return table.source + ": \"" + std::to_string(entry.tokens) +
             "\": the kernels have no such way through these experts with so many tokens";
    }
  }
  return "";
}

}  // namespace mojo
