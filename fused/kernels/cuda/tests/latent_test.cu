// LatentAttention against its definition in double on the host: the naive form. Exits 1 on a failure.
// `make cuda-programs` builds it. "small" is for compute-sanitizer.
#include <memory>
#include <string>

#include "cuda/tests/host.h"

namespace {

// Form is a way to use LatentAttention.
struct Form {
  MojoType type = kMojoBFloat16;
  size_t batch = 1, heads = 1, queries = 1, added = 1;
  size_t nope = 128, rotated = 64, latent = 512, value_width = 128;
  size_t past = 0, lengths = 0;  // rows of past, or its room with numbers of past_length; 0: left out
  bool in_place = true;          // with lengths: present is past
  bool present = true;
  bool causal = true, mean = false, q_by_token = false, y_by_token = true, w_out_in = true;
  int padding = 0;  // 1: left, 2: holes, 3: no key is valid
  float scale = 0.07f;
  size_t offset = 0;  // bytes off the alignment

  std::string Text() const {
    char text[240];
    snprintf(
        text, sizeof(text),
        "%s B%zu H%zu S%zu N%zu P%zu %zu+%zu of %zu, values %zu, lengths %zu in place %d present %d causal %d mean "
        "%d layout %d%d%d padding %d offset %zu",
        TypeName(type), batch, heads, queries, added, past, nope, rotated, latent, value_width, lengths, in_place,
        present, causal, mean, q_by_token, y_by_token, w_out_in, padding, offset);
    return text;
  }
};

mojo::HeadSteps Steps(size_t heads, size_t tokens, size_t width, bool by_token) {
  return {heads * tokens * width, by_token ? width : tokens * width, by_token ? heads * width : width};
}

// Case has the tensors of a form.
struct Case {
  const Form f;
  const size_t width, room;
  Numbers q, c, k_pe, w, past, y, present;
  Ids past_length, key_valid;
  std::unique_ptr<Numbers> scratch;
  std::vector<size_t> lengths;  // before the new tokens
  MojoLatentAttentionArgs a = {};
  double share = 0;  // the worst error over its bound

  Case(const Form& form, Random* random)
      : f(form),
        width(f.latent + f.rotated),
        room(f.lengths > 0 ? f.past : f.past + f.added),
        q(f.type, f.batch * f.heads * f.queries * (f.nope + f.rotated), f.offset),
        c(f.type, f.batch * f.added * f.latent, f.offset),
        k_pe(f.type, f.batch * f.added * f.rotated, f.offset),
        w(f.type, f.latent * f.heads * (f.nope + f.value_width), f.offset),
        past(f.type, f.batch * f.past * width, f.offset),
        y(f.type, f.batch * f.heads * f.queries * f.value_width, f.offset),
        present(f.type, f.batch * room * width, f.offset),
        past_length(std::max<size_t>(f.lengths, 1)),
        key_valid(f.batch * (room + 3)),
        lengths(f.batch, f.past) {
    for (size_t i = 0; i < f.lengths; ++i)
      past_length.host[i] = static_cast<int64_t>(random->Below(f.past - f.added + 1));
    for (size_t b = 0; b < f.batch && f.lengths > 0; ++b) lengths[b] = past_length.host[f.lengths == 1 ? 0 : b];
    for (Numbers* n : {&q, &c, &k_pe, &past}) n->Fill(random, 1);
    w.Fill(random, 1 / sqrtf(static_cast<float>(f.latent)));
    for (size_t b = 0; b < f.batch; ++b) {
      for (size_t i = lengths[b] * width; i < f.past * width; ++i) past.Set(b * f.past * width + i, NAN);
      const size_t few = random->Below(lengths[b] + f.added + 1);
      for (size_t j = 0; j < room + 3; ++j) {
        const bool is = f.padding == 1 ? j >= few : f.padding == 2 ? random->Below(3) != 0 : f.padding != 3;
        key_valid.host[b * (room + 3) + j] = is;
      }
    }
    for (Numbers* n : {&q, &c, &k_pe, &w, &past}) n->ToDevice();
    past_length.ToDevice();
    key_valid.ToDevice();
    a.q = q.device(), a.c = c.device(), a.k_pe = k_pe.device(), a.w = w.device(), a.y = y.device();
    a.q_steps = Steps(f.heads, f.queries, f.nope + f.rotated, f.q_by_token);
    a.y_steps = Steps(f.heads, f.queries, f.value_width, f.y_by_token);
    if (f.past > 0) a.past_latents = past.device();
    if (f.lengths > 0) a.past_lengths = past_length.device, a.one_length = f.lengths == 1;
    if (f.padding != 0) a.key_valid = key_valid.device, a.valid_step = room + 3;
    if (f.present) a.present = f.lengths > 0 && f.in_place ? past.device() : present.device();
    a.batch = f.batch, a.heads = f.heads, a.queries = f.queries, a.added = f.added, a.past = f.past, a.room = room;
    a.nope = f.nope, a.rotated = f.rotated, a.latent = f.latent, a.value_width = f.value_width;
    a.scale = f.scale, a.causal = f.causal, a.empty_mean = f.mean, a.w_out_in = f.w_out_in, a.type = f.type;
    scratch = std::make_unique<Numbers>(kMojoFloat32, MojoLatentAttentionScratch(&a) / 4);
    a.scratch = scratch->device();
  }

  // Latent is a number of a token's latent.
  float Latent(size_t b, size_t j, size_t d) const {
    if (j < lengths[b]) return past.Get((b * f.past + j) * width + d);
    const size_t token = b * f.added + j - lengths[b];
    return d < f.latent ? c.Get(token * f.latent + d) : k_pe.Get(token * f.rotated + d - f.latent);
  }

  // Head computes the rows of y of a head.
  void Head(size_t b, size_t h, std::vector<double>* want) const {
    const size_t length = lengths[b] + f.added, of_head = f.nope + f.value_width, outputs = f.heads * of_head;
    std::vector<float> matrix(of_head * f.latent), latent(f.latent);
    for (size_t n = 0; n < of_head; ++n) {
      for (size_t d = 0; d < f.latent; ++d) {
        const size_t out = h * of_head + n;
        matrix[n * f.latent + d] = w.Get(f.w_out_in ? out * f.latent + d : d * outputs + out);
      }
    }
    std::vector<double> both(length * of_head);
    for (size_t j = 0; j < length; ++j) {
      for (size_t d = 0; d < f.latent; ++d) latent[d] = Latent(b, j, d);
      for (size_t n = 0; n < of_head; ++n) {
        double sums[4] = {};
        for (size_t d = 0; d < f.latent; ++d) sums[d % 4] += double{latent[d]} * matrix[n * f.latent + d];
        both[j * of_head + n] = sums[0] + sums[1] + sums[2] + sums[3];
      }
    }
    std::vector<double> p(length), total(f.value_width);
    for (size_t i = 0; i < f.queries; ++i) {
      double most = -HUGE_VAL, sum = 0;
      for (size_t j = 0; j < length; ++j) {
        double s = 0;
        for (size_t d = 0; d < f.nope + f.rotated; ++d) {
          const double k = d < f.nope ? both[j * of_head + d] : Latent(b, j, f.latent + d - f.nope);
          s += q.Get(b * a.q_steps.batch + h * a.q_steps.head + i * a.q_steps.row + d) * k;
        }
        const bool seen =
            (!f.causal || j + f.queries <= i + length) && (f.padding == 0 || key_valid.host[b * (room + 3) + j] != 0);
        p[j] = seen ? s * f.scale : -HUGE_VAL;
        most = std::max(most, p[j]);
      }
      std::fill(total.begin(), total.end(), 0);
      for (size_t j = 0; j < length; ++j) {
        const double by = most == -HUGE_VAL ? (f.mean ? 1 : 0) : exp(p[j] - most);
        sum += by;
        for (size_t d = 0; d < f.value_width; ++d) total[d] += by * both[j * of_head + f.nope + d];
      }
      for (size_t d = 0; d < f.value_width; ++d) {
        (*want)[b * a.y_steps.batch + h * a.y_steps.head + i * a.y_steps.row + d] = sum == 0 ? 0 : total[d] / sum;
      }
    }
  }

  // Check compares the outputs with the expected ones, and returns the first error, or "".
  std::string Check() {
    y.ToHost();
    std::vector<double> want(y.count());
    InParallel(f.batch * f.heads, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) Head(i / f.heads, i % f.heads, &want);
    });
    double most = 0, worst = 0;
    for (const double v : want) most = std::max(most, fabs(v));
    // Numbers between the products are rounded to the type.
    const double bound = (f.type == kMojoFloat32 ? 64 : 4) * Unit(f.type) * most;
    size_t at = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = fabs(y.Get(i) - want[i]);
      if (!(off <= worst)) worst = isnan(off) ? HUGE_VAL : off, at = i;
    }
    share = bound > 0 ? worst / bound : 0;
    char text[160] = "";
    if (worst > bound) {
      snprintf(text, sizeof(text), "element %zu of y is %.9g, not %.9g (may be off %.3g)", at, y.Get(at), want[at],
               bound);
    } else if (f.present && !Present()) {
      snprintf(text, sizeof(text), "present is not the latents");
    }
    for (const Numbers* n : {&q, &c, &k_pe, &w, &past, &y, &present, scratch.get()}) {
      if (text[0] == 0 && !n->Guarded()) snprintf(text, sizeof(text), "it wrote beside a tensor");
    }
    return text;
  }

  // Present reports whether present is as expected, bit for bit.
  bool Present() {
    Numbers* const got = f.lengths > 0 && f.in_place ? &past : &present;
    const std::vector<char> before = past.bytes();
    const size_t bytes = SizeOf(f.type);
    got->ToHost();
    bool equal = true;
    for (size_t b = 0; b < f.batch; ++b) {
      for (size_t j = 0; j < room; ++j) {
        const char* const row = got->bytes().data() + (b * room + j) * width * bytes;
        const size_t added = j - lengths[b];
        if (j >= lengths[b] && added < f.added) {
          const size_t token = b * f.added + added;
          equal =
              equal && memcmp(row, c.bytes().data() + token * f.latent * bytes, f.latent * bytes) == 0 &&
              memcmp(row + f.latent * bytes, k_pe.bytes().data() + token * f.rotated * bytes, f.rotated * bytes) == 0;
        } else {
          equal = equal && memcmp(row, before.data() + (b * f.past + j) * width * bytes, width * bytes) == 0;
        }
      }
    }
    return equal;
  }
};

int checks = 0, failures = 0;
double share = 0;

// Test runs a form twice; the second run must return the same bits.
void Test(const Form& f, Random* random) {
  Case c(f, random);
  ++checks;
  const auto fail = [&](const std::string& what) {
    if (++failures <= 20) printf("FAIL %s: %s\n", f.Text().c_str(), what.c_str());
  };
  Check(MojoCudaLatentAttention(&c.a, nullptr), f.Text().c_str());
  Check(cudaDeviceSynchronize(), f.Text().c_str());
  const std::string wrong = c.Check();
  share = std::max(share, c.share);
  if (!wrong.empty()) return fail(wrong);
  const std::vector<char> once = c.y.bytes();
  c.y.Poison();
  Check(MojoCudaLatentAttention(&c.a, nullptr), "again");
  c.y.ToHost();
  if (c.y.bytes() != once) fail("another result the second time");
}

// Any draws a form.
Form Any(MojoType type, Random* random) {
  const auto pick = [&](std::vector<size_t> of) { return of[random->Below(of.size())]; };
  const auto chance = [&] { return random->Below(2) == 0; };
  Form f;
  f.type = type;
  f.batch = pick({1, 2, 3});
  f.heads = pick({1, 2, 5, 16});
  f.queries = pick({1, 1, 2, 5, 33, 70});
  f.added = pick({f.queries, f.queries, 4});
  f.past = pick({0, 1, 9, 64, 130, 300});
  f.nope = pick({0, 6, 8, 32, 128});
  f.rotated = pick({2, 4, 8, 16, 64, 0});
  if (f.nope + f.rotated == 0) f.nope = 16;
  f.latent = pick({1, 5, 16, 64, 80, 512});
  f.value_width = pick({7, 8, 32, 128});
  if (f.past >= f.added && chance()) f.lengths = pick({1, f.batch});
  f.in_place = chance(), f.present = random->Below(5) != 0;
  f.causal = random->Below(3) != 0, f.mean = chance();
  f.q_by_token = chance(), f.y_by_token = chance(), f.w_out_in = chance();
  f.padding = static_cast<int>(random->Below(2) * random->Below(4));
  f.scale = 1 / sqrtf(static_cast<float>(f.nope + f.rotated));
  f.offset = random->Below(8) == 0 ? 4 : 0;
  return f;
}

// TestSteps has DeepSeek's widths: steps, a few tokens at once, and prompts.
void TestSteps(MojoType type, bool small, Random* random) {
  for (const size_t heads : small ? std::vector<size_t>{5} : std::vector<size_t>{128, 16}) {
    for (const size_t queries : {1, 3, 150}) {
      for (const size_t past : small ? std::vector<size_t>{90} : std::vector<size_t>{0, 70, 700}) {
        Form f;
        f.type = type;
        f.heads = heads;
        f.batch = heads == 128 ? 1 : 3;
        f.queries = f.added = queries;
        f.past = past;
        f.w_out_in = heads == 128;
        Test(f, random);
        f.padding = 1;
        f.mean = true;
        f.lengths = past >= queries ? f.batch : 0;
        Test(f, random);
      }
    }
  }
}

void Line(const char* what) {
  static int checked = 0, failed = 0;
  printf("%-60s %5d checks, %d failed, worst %.2f of what may be\n", what, checks - checked, failures - failed, share);
  checked = checks, failed = failures, share = 0;
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && strcmp(argv[1], "small") == 0;
  Random random(7);
  for (const MojoType type : {kMojoBFloat16, kMojoFloat16, kMojoFloat32}) {
    for (int i = 0; i < (small ? 20 : 200); ++i) Test(Any(type, &random), &random);
    Line((std::string(TypeName(type)) + ", any forms").c_str());
    TestSteps(type, small, &random);
    Line((std::string(TypeName(type)) + ", DeepSeek's widths").c_str());
  }
  printf("latent_test: %d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
