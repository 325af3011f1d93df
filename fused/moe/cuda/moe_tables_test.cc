// Tables of the kernels for experts: reading them, and finding the entry for a call.
#include "moe/cuda/moe_tables.h"

#include <string.h>

#include "tests/testing.h"

namespace mojo_test {
namespace {

using mojo::MoETable;
using mojo::MoETableShape;

const char kHead[] =
    R"({"shape": {"format": "mxfp4", "experts": 32, "top_k": 4, "hidden": 2880, "inner": 2880, "capability": 90})";
const char kAlpha[] = R"({"1": {"block_m": 16, "block_n": 32, "warp_n": 8, "stages": 5},
  "512": {"block_m": 40, "block_n": 64, "warp_n": 4, "stages": 2}})";

std::string Ours(const std::string& entries) { return kHead + (", " + entries + "}"); }

MoETable Read(const std::string& text) {
  MoETable table;
  const std::string wrong = mojo::ReadMoETable(text, "t.json", &table);
  Check(wrong.empty(), "a table is not read: %s", wrong.c_str());
  return table;
}

void Refused(const std::string& text, const char* what) {
  MoETable table;
  const std::string wrong = mojo::ReadMoETable(text, "t.json", &table);
  Check(wrong.find("t.json: ") == 0 && wrong.find(what) != std::string::npos, "%s gives \"%s\", not \"%s\"",
        text.c_str(), wrong.c_str(), what);
}

// Takes are kernels with tiles of 16, 32 and 64 by wgmma, and others for up to 8 tokens.
mojo::TakesMoEConfig Takes(size_t tokens) {
  return [tokens](const MojoMoEConfig& c) {
    if (c.kernel == kMojoAnyKernel) return c.tile == 0;
    if (c.kernel == kMojoFew) return tokens <= 8 && c.tile == 0;
    return c.kernel == kMojoWgmma && (c.tile == 16 || c.tile == 32 || c.tile == 64) && c.split <= 8;
  };
}

}  // namespace

MOJO_TEST(TestMoETables) {
  if (strcmp(kernels.name, "portable") != 0) return;  // once
  const MoETable table = Read(Ours(R"("64": {"kernel": "wgmma", "block_m": 16, "split": 2, "us": 171.5},
      "1": {"kernel": "few"}, "512": {"kernel": "wgmma", "block_m": 64}, "8192": {"kernel": "auto"})"));
  MoETableShape shape = table.shape;
  Check(shape.format == "mxfp4" && shape.experts == 32 && shape.top_k == 4 && shape.hidden == 2880 &&
            shape.inner == 2880 && !shape.in_out && table.capability == 90,
        "the shape of a table");
  const auto tile = [&](const MoETable& t, size_t tokens) {
    return mojo::FindMoEConfig({t}, shape, 90, tokens, Takes(tokens));
  };
  Check(tile(table, 1).kernel == kMojoFew && tile(table, 8).kernel == kMojoFew, "few tokens take the nearest entry");
  Check(tile(table, 20).tile == 16, "an entry that the kernels do not take so many tokens by is passed over");
  Check(tile(table, 60).split == 2 && tile(table, 64).tile == 16 && tile(table, 287).tile == 16 &&
            tile(table, 288).tile == 16 && tile(table, 289).tile == 64 && tile(table, 4096).tile == 64 &&
            tile(table, 1 << 20).kernel == kMojoAnyKernel,
        "the nearest entry, of two as near the first");
  Check(mojo::FindMoEConfig({table}, shape, 80, 64, Takes(64)).kernel == kMojoAnyKernel, "another device");
  shape.top_k = 8;
  Check(tile(table, 64).kernel == kMojoAnyKernel, "another shape");

  const MoETable alpha = Read(kAlpha);
  shape = {};
  shape.format = "fp8";
  Check(tile(alpha, 1).tile == 16 && tile(alpha, 4096).tile == 64, "Alpha-MoE's tiles, or the next ones");
  shape.format = "mxfp4";
  Check(tile(alpha, 1).kernel == kMojoAnyKernel, "Alpha-MoE's are for fp8");

  const auto takes = [](size_t tokens, const MojoMoEConfig& c) { return Takes(tokens)(c); };
  Check(mojo::CheckMoETable(table, 90, takes).empty() && mojo::CheckMoETable(alpha, 90, takes).empty(),
        "tables are good");
  Check(mojo::CheckMoETable(table, 80, takes) ==
            "t.json: it was measured on compute capability 9.0, and this device "
            "has 8.0",
        "another device's table");
  for (const char* entry : {R"("16": {"kernel": "few"})", R"("16": {"kernel": "wgmma", "block_m": 24})",
                            R"("16": {"kernel": "mma", "block_m": 64})"}) {
    const std::string wrong = mojo::CheckMoETable(Read(Ours(entry)), 90, takes);
    Check(wrong.find("t.json: \"16\": the kernels have no such way") == 0, "%s is taken: %s", entry, wrong.c_str());
  }
}

MOJO_TEST(TestMoETablesRefused) {
  if (strcmp(kernels.name, "portable") != 0) return;  // once
  const char* const json = "it is no JSON object";
  for (const char* text : {"", "[]", "{", "{\"1\": 2}", "{\"1\": {\"kernel\": \"few\"}", "{\"1\": {\"kernel\": few}}",
                           "{\"1\": {\"a\": [1]}}", "{\"\\u0031\": {}}", "{\"1\"}", "{} x"}) {
    Refused(text, json);
  }
  Refused(std::string("{\"1\": {\"a\": 1\0}}", 16), json);
  Refused(kHead + std::string("}"), "it has no number of tokens");
  Refused("{}", "it has no number of tokens");
  Refused(R"({"1": {"kernel": "few"}})", "it does not say its shape");
  Refused(Ours(R"("1": {"kernel": "fewer"})"), "\"1\": kernel is \"fewer\"; it is auto, few, mma or wgmma");
  Refused(Ours(R"("1": {"kernel": "wgmma", "block_m": 1.5})"), "\"1\": block_m and split are whole numbers");
  Refused(Ours(R"("1": {"kernel": "wgmma", "split": "two"})"), "\"1\": block_m and split are whole numbers");
  Refused(Ours(R"("1": {"kernel": "few"}, "1": {"kernel": "few"})"), "\"1\": there are two of it");
  for (const char* key : {"0", "-1", "01", "1x", "", "one", "1234567890"}) {
    Refused(Ours("\"" + std::string(key) + "\": {\"kernel\": \"few\"}"), "it is no number of tokens");
  }
  Refused(Ours(R"("1": {"kernel": "few"}, "2": {"block_m": 16, "block_n": 32, "warp_n": 8, "stages": 5})"),
          "\"2\": entries of ours and of Alpha-MoE");
  Refused(R"({"8": {"block_m": 16, "block_n": 32, "warp_n": 8}})", "\"8\": it has neither a kernel nor");
  for (const char* entry :
       {"12, \"block_n\": 32, \"warp_n\": 8, \"stages\": 5", "136, \"block_n\": 32, \"warp_n\": 8, \"stages\": 5",
        "16, \"block_n\": 64, \"warp_n\": 8, \"stages\": 5", "16, \"block_n\": 32, \"warp_n\": 8, \"stages\": 6"}) {
    Refused("{\"8\": {\"block_m\": " + std::string(entry) + "}}", "\"8\": Alpha-MoE has block_m of 8 to 128");
  }
  Refused(R"({"shape": {"format": "q4_0"}, "1": {"kernel": "few"}})", "\"shape\": format is \"q4_0\"");
  Refused(R"({"shape": {"format": "fp8", "layout": "up"}, "1": {"kernel": "few"}})", "\"shape\": layout is \"up\"");
  Refused(R"({"shape": {"format": "fp8", "experts": 0}, "1": {"kernel": "few"}})", "\"shape\": experts is missing");
}

MOJO_TEST(TestShippedMoETables) {
  if (strcmp(kernels.name, "portable") != 0) return;  // once
  std::vector<MoETable> tables, none;
  const std::string wrong = mojo::ReadMoETables(nullptr, &tables);
  Check(wrong.empty(), "a table of the library is not read: %s", wrong.c_str());
  for (const MoETable& table : tables) {
    Check(table.shipped && !table.alpha && table.capability > 0, "%s came with the library", table.source.c_str());
    Check(mojo::CheckMoETable(table, 80, [](size_t, const MojoMoEConfig&) { return false; }).empty(),
          "%s keeps sessions from opening", table.source.c_str());
  }
  Check(mojo::ReadMoETables("none", &none).empty() && none.empty(), "none gives tables");
  Check(mojo::ReadMoETables("/absent/t.json", &none) == "/absent/t.json: it cannot be read as a table",
        "a file that is not there");
}

}  // namespace mojo_test
